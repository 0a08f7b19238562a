//! What is configured of connections, as the transport takes it: some of it may change while the node runs.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tarn_image::config::server::{Listener, ServerConfig};
use tarn_image::configs::Configs;
use tarn_image::effective::BrokerView;
use tarn_image::effective::connections::ConnectionConfig;
use tarn_runtime::socket::lookup;
use tarn_runtime::{CoreId, Queue, spawn};
use tarn_transport::{Admission, AdmissionLimits, ConnectionLimits, ListenerSpec, MemoryBudget};
use tracing::warn;

use crate::core::Core;
use crate::limits;

/// What the connections of the node may use.
pub(crate) fn connection_limits(config: &ServerConfig) -> ConnectionLimits {
    let network = &config.network;
    let count = |limit: i32| usize::try_from(limit).unwrap_or(usize::MAX);
    ConnectionLimits {
        max_request_bytes: count(network.request_max_bytes),
        idle_timeout: Duration::from_millis(u64::try_from(network.idle_ms).unwrap_or(u64::MAX)),
        admission: at_start(config),
        stop_grace: limits::STOP_GRACE,
        ..ConnectionLimits::default()
    }
}

/// Who may connect by the configuration file alone: until the metadata are known. Looks names up.
fn at_start(config: &ServerConfig) -> AdmissionLimits {
    let (configs, broker) = (Configs::default(), config.node_id.to_string());
    let asked = ConnectionConfig::resolve(&BrokerView::new(&configs, &broker, &config.properties));
    let found = names(&asked).map(|name| {
        let addresses = (name, 0).to_socket_addrs().map(|found| found.map(|one| one.ip()).collect());
        (name.to_owned(), addresses_of(name, addresses))
    });
    admission_limits(&asked, &found.collect())
}

/// Who may connect to a node, as its metadata say now.
#[derive(Debug)]
pub struct ConnectionRules {
    admission: Arc<Admission>,
    asked: Mutex<Option<ConnectionConfig>>,
}

impl ConnectionRules {
    /// Those of an acceptor that runs by the configuration file.
    pub fn new(admission: Arc<Admission>) -> ConnectionRules {
        ConnectionRules { admission, asked: Mutex::default() }
    }

    /// The most connections at once.
    pub fn max(&self) -> usize {
        self.admission.max()
    }

    /// Takes note of what is asked for; false where it was asked for before.
    fn ask(&self, config: &ConnectionConfig) -> bool {
        let mut asked = self.asked();
        let is_new = asked.as_ref() != Some(config);
        asked.replace(config.clone());
        is_new
    }

    fn asked(&self) -> MutexGuard<'_, Option<ConnectionConfig>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts in force what the metadata say of connections: at once, but for names, which are looked up beside the core.
pub(crate) fn configure(core: &Rc<Core>) {
    let Some(rules) = core.node().connection_rules().filter(|_| core.id() == CoreId(0)) else { return };
    let (image, broker) = (core.image(), core.node().broker_id().to_string());
    let view = BrokerView::new(image.configs(), &broker, &core.node().config().properties);
    let asked = ConnectionConfig::resolve(&view);
    if !rules.ask(&asked) {
        return;
    }
    if names(&asked).next().is_none() {
        return rules.admission.configure(admission_limits(&asked, &HashMap::new()));
    }
    let core = core.clone();
    spawn(Queue::Background, async move {
        let mut found = HashMap::new();
        for name in names(&asked) {
            found.insert(name.to_owned(), addresses_of(name, lookup(name).await));
        }
        let rules = core.node().connection_rules();
        // Something else may have been asked for meanwhile.
        if let Some(rules) = rules.filter(|rules| rules.asked().as_ref() == Some(&asked)) {
            rules.admission.configure(admission_limits(&asked, &found));
        }
    })
    .detach();
}

/// The hosts with limits of their own that are no addresses.
fn names(config: &ConnectionConfig) -> impl Iterator<Item = &str> {
    let hosts = config.max_of_hosts.iter().map(|(host, _)| &**host);
    hosts.filter(|host| host.parse::<IpAddr>().is_err())
}

fn addresses_of(name: &str, found: io::Result<Vec<IpAddr>>) -> Vec<IpAddr> {
    found.unwrap_or_else(|error| {
        warn!(host = name, %error, "max.connections.per.ip.overrides names a host that has no address; it is left out");
        Vec::new()
    })
}

fn admission_limits(config: &ConnectionConfig, found: &HashMap<String, Vec<IpAddr>>) -> AdmissionLimits {
    let addresses = |host: &str| match host.parse::<IpAddr>() {
        Ok(address) => vec![address],
        Err(_) => found.get(host).cloned().unwrap_or_default(),
    };
    let of_hosts = config.max_of_hosts.iter();
    let max_of_ip =
        of_hosts.flat_map(|(host, count)| addresses(host).into_iter().map(|ip| (ip.to_canonical(), *count)));
    AdmissionLimits {
        max: config.max,
        max_per_ip: config.max_per_ip,
        max_of_ip: max_of_ip.collect(),
        creations_per_second: config.creations_per_second,
    }
}

/// A listener with its backlog and the buffers of what it accepts. Looks the host up.
///
/// # Errors
/// Where the host has no address.
pub(crate) fn listener_spec(config: &ServerConfig, listener: &Listener) -> io::Result<ListenerSpec> {
    let network = &config.network;
    let mut spec = ListenerSpec::new(&listener.name, &listener.host, listener.port)?;
    spec.backlog = network.backlog;
    spec.receive_buffer = network.receive_buffer_bytes;
    spec.send_buffer = network.send_buffer_bytes;
    Ok(spec)
}

/// The memory for the inbound frames of a node of so many cores.
pub(crate) fn inbound_budget(config: &ServerConfig, cores: usize) -> Arc<MemoryBudget> {
    let configured = config.network.queued_max_request_bytes;
    MemoryBudget::new(configured.unwrap_or_else(|| limits::inbound_bytes(cores)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_that_are_configured_are_those_of_sockets_and_budget() {
        let set = config(
            "socket.receive.buffer.bytes=65536\nsocket.send.buffer.bytes=131072\nqueued.max.request.bytes=1000000\n",
        );
        let spec = listener_spec(&set, &set.listeners[0]).expect("it is an address");
        assert_eq!((spec.receive_buffer, spec.send_buffer), (Some(65536), Some(131_072)));
        assert_eq!(inbound_budget(&set, 4).limit(), 1_000_000);
    }

    #[test]
    fn what_is_not_configured_is_left_to_the_kernel_and_to_the_number_of_cores() {
        let unset = config("");
        let spec = listener_spec(&unset, &unset.listeners[0]).expect("it is an address");
        assert_eq!((spec.receive_buffer, spec.send_buffer), (None, None));
        assert_eq!(inbound_budget(&unset, 4).limit(), limits::inbound_bytes(4));
    }

    #[test]
    fn hosts_with_limits_of_their_own_are_known_by_their_addresses() {
        let set = config(
            "max.connections=9\nmax.connections.per.ip=4\n\
             max.connections.per.ip.overrides=localhost:3,10.0.0.7:2,nowhere.invalid:1\n",
        );
        let admission = connection_limits(&set).admission;
        assert_eq!((admission.max, admission.max_per_ip), (9, 4));
        let of = |ip: &str| admission.max_of_ip.get(&ip.parse().expect("an address")).copied();
        assert_eq!((of("127.0.0.1"), of("10.0.0.7"), of("10.0.0.8")), (Some(3), Some(2), None));
    }

    fn config(more: &str) -> ServerConfig {
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\nlog.dirs=/data\n\
             controller.quorum.bootstrap.servers=127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n\
             listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n{more}"
        );
        ServerConfig::parse(&text).expect("the test's file is good").0
    }
}
