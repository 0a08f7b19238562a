//! The connections that questions to a source go over, apart from those that fetch. One set for each
//! mirror, on the manager's core.
//!
//! Invariant: a connection is kept and given out only once the broker has said that it belongs to the
//! cluster that the mirror was made for. An address that leads elsewhere is looked up anew each time.
//!
//! One rule for an address that leads elsewhere, a broker's or one of the bootstrap: whoever met it, a question, a
//! lane or a look, says SOURCE_CLUSTER_CHANGED, which address it is and where it leads, and waits for what hangs
//! on that address alone. That the source itself is another cluster is said only by a look over every address,
//! where some lead elsewhere and none leads to the right cluster, whether or not the others answer.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_image::config::mirror::MirrorConfig;
use tarn_runtime::Queue;
use tarn_transport::{Client, ClientError, ClientOptions, Endpoint};

use super::metadata::{self, Topics};
use super::{Elsewhere, SourceError, is_pinned};
use crate::limits;
use crate::metrics::MirrorMetrics;

/// Connections to brokers of one source.
#[derive(Debug)]
pub struct Connections {
    options: ClientOptions,
    /// The cluster that is meant; `None` before it is known.
    pinned: Option<String>,
    bootstrap: Vec<Endpoint>,
    open: RefCell<BTreeMap<Endpoint, Client>>,
    /// Where those that cannot be made are counted.
    metrics: Arc<MirrorMetrics>,
}

impl Connections {
    /// None yet.
    pub fn new(config: &MirrorConfig, client_id: String, metrics: Arc<MirrorMetrics>) -> Connections {
        let options = ClientOptions {
            client_id,
            connect_timeout: config.connect_timeout,
            request_timeout: config.request_timeout,
            max_response_bytes: limits::ANSWER_BYTES_MAX,
            queue: Queue::Mirror,
            ..ClientOptions::default()
        };
        let endpoint = |(host, port): &(String, u16)| Endpoint { host: host.clone(), port: *port };
        Connections {
            options,
            pinned: config.source_cluster_id.clone(),
            bootstrap: config.bootstrap.iter().map(endpoint).collect(),
            open: RefCell::default(),
            metrics,
        }
    }

    /// The connection to one broker, made where there is none.
    ///
    /// # Errors
    /// Why it cannot be made, or where it leads instead.
    pub async fn to(&self, endpoint: &Endpoint) -> Result<Client, SourceError> {
        let known = self.open.borrow().get(endpoint).filter(|client| !client.is_closed()).cloned();
        if let Some(client) = known {
            return Ok(client);
        }
        let connected = connect(endpoint, &self.options, self.pinned.as_deref()).await;
        let client = connected.inspect_err(|_| self.metrics.link_failures.add(1))?;
        self.open.borrow_mut().insert(endpoint.clone(), client.clone());
        Ok(client)
    }

    /// A connection to whichever broker of the cluster answers: one that is open, one of `known`, or one of
    /// the bootstrap addresses.
    ///
    /// # Errors
    /// `ClusterChanged` where an address leads elsewhere; else what was wrong with the first that answered, or what
    /// each of them said.
    pub async fn any(&self, known: &[Endpoint]) -> Result<Client, SourceError> {
        let open = self.open.borrow().values().find(|client| !client.is_closed()).cloned();
        if let Some(client) = open {
            return Ok(client);
        }
        self.open.borrow_mut().clear();
        let mut tried: Vec<&Endpoint> = Vec::new();
        let mut without = Without::default();
        for endpoint in known.iter().chain(&self.bootstrap) {
            if tried.contains(&endpoint) {
                continue;
            }
            tried.push(endpoint);
            match self.to(endpoint).await {
                Ok(client) => return Ok(client),
                Err(error) => without.note(endpoint, error),
            }
        }
        Err(without.sum_up())
    }

    /// Closes the connections to brokers that are not among `endpoints`.
    pub fn keep(&self, endpoints: &[Endpoint]) {
        self.open.borrow_mut().retain(|endpoint, client| {
            !client.is_closed() && (endpoints.contains(endpoint) || self.bootstrap.contains(endpoint))
        });
    }
}

/// What was wrong with each address of a look that found none that leads to the source.
#[derive(Default)]
struct Without {
    pinned: String,
    elsewhere: Vec<Elsewhere>,
    said: Vec<String>,
    /// The first that answered, and what.
    answered: Option<SourceError>,
}

impl Without {
    fn note(&mut self, endpoint: &Endpoint, error: SourceError) {
        match error {
            SourceError::ClusterChanged { pinned, elsewhere, .. } => {
                self.pinned = pinned;
                self.elsewhere.extend(elsewhere);
            }
            SourceError::Call(error) => self.said.push(said_by(endpoint, &error)),
            error => {
                self.said.push(format!("{endpoint}: {error}"));
                self.answered.get_or_insert(error);
            }
        }
    }

    fn sum_up(self) -> SourceError {
        let Without { pinned, elsewhere, said: silent, answered } = self;
        if !elsewhere.is_empty() {
            return SourceError::ClusterChanged { pinned, elsewhere, silent };
        }
        answered.unwrap_or_else(|| SourceError::Unreachable(silent.join("; ")))
    }
}

/// A new connection, to a broker of the cluster `pinned`, where one is.
///
/// # Errors
/// Why it cannot be made, or where it leads instead.
pub async fn connect(
    endpoint: &Endpoint,
    options: &ClientOptions,
    pinned: Option<&str>,
) -> Result<Client, SourceError> {
    let client = Client::connect(endpoint, options).await?;
    if let Some(pinned) = pinned {
        let found = metadata::ask(&client, Topics::None).await?.cluster_id;
        is_pinned(pinned, found.as_deref(), &endpoint.to_string())?;
    }
    Ok(client)
}

/// What is wrong, with the address, which not every error names.
fn said_by(endpoint: &Endpoint, error: &ClientError) -> String {
    match error {
        ClientError::Unreachable { .. } | ClientError::NotKafka { .. } => error.to_string(),
        _ => format!("{endpoint}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_finds_no_right_address_names_those_that_lead_elsewhere_and_those_that_lead_nowhere() {
        let at = |host: &str| Endpoint { host: host.into(), port: 1 };
        let closed = || ClientError::Closed { detail: "the broker closed it".into() };
        let mut without = Without::default();
        without.note(&at("a"), closed().into());
        assert_eq!(without.said.len(), 1);
        without.note(&at("b"), is_pinned("east", Some("north"), "b:1").unwrap_err());
        without.note(&at("c"), SourceError::NoClusterId);
        without.note(&at("d"), is_pinned("east", Some("south"), "d:1").unwrap_err());
        let error = without.sum_up();
        assert_eq!(error.reason(), crate::reasons::Reason::SourceClusterChanged);
        let said = error.to_string();
        assert!(
            said.starts_with(
                "b:1 leads to cluster north and d:1 leads to cluster south, but the mirror was made for cluster \
                 east; a:1: "
            ),
            "{said}"
        );
        assert!(said.ends_with("; c:1: the source does not say its cluster id"), "{said}");
    }

    #[test]
    fn a_look_that_leads_nowhere_is_no_look_that_leads_elsewhere() {
        let at = Endpoint { host: "a".into(), port: 1 };
        let mut without = Without::default();
        without.note(&at, ClientError::Closed { detail: "the broker closed it".into() }.into());
        assert!(matches!(without.sum_up(), SourceError::Unreachable(said) if said.starts_with("a:1: ")));
    }
}
