//! How many connections a node takes, and how fast: it may change while the node runs.

use super::BrokerView;
use crate::config::table;
use crate::config::value::host_counts;

/// The broker keys that rule it.
pub const KEYS: [&str; 4] = [
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
];

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionConfig {
    /// `max.connections`: those of the whole node.
    pub max: usize,
    /// `max.connections.per.ip`: those from one address.
    pub max_per_ip: usize,
    /// `max.connections.per.ip.overrides`: those from the addresses of these hosts instead.
    pub max_of_hosts: Vec<(String, usize)>,
    /// `max.connection.creation.rate`: new ones in a second; `None` where it is Kafka's default, as many as come.
    pub creations_per_second: Option<u32>,
}

impl ConnectionConfig {
    /// What is in force on this broker.
    pub fn resolve(broker: &BrokerView<'_>) -> ConnectionConfig {
        let text = |name: &str| table::broker_key(name).and_then(|key| broker.value(key)).unwrap_or_default();
        let count = |name: &str| text(name).parse::<u32>().unwrap_or(i32::MAX as u32);
        let rate = count("max.connection.creation.rate");
        let of_hosts = text("max.connections.per.ip.overrides");
        let of_hosts = host_counts(&of_hosts).unwrap_or_default().into_iter();
        ConnectionConfig {
            max: count("max.connections") as usize,
            max_per_ip: count("max.connections.per.ip") as usize,
            max_of_hosts: of_hosts.map(|(host, count)| (host.to_owned(), count)).collect(),
            creations_per_second: Some(rate).filter(|rate| *rate < i32::MAX as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configs::Configs;
    use crate::effective::StaticConfigs;

    #[test]
    fn a_node_without_configs_takes_as_many_as_kafkas() {
        let config = resolve(&[]);
        let most = i32::MAX as usize;
        assert_eq!((config.max, config.max_per_ip, config.creations_per_second), (most, most, None));
        assert!(config.max_of_hosts.is_empty());
    }

    #[test]
    fn what_the_file_says_is_in_force() {
        let config = resolve(&[
            ("max.connections", "7"),
            ("max.connections.per.ip", "0"),
            ("max.connections.per.ip.overrides", "localhost:3, ::1:4"),
            ("max.connection.creation.rate", "10"),
        ]);
        assert_eq!((config.max, config.max_per_ip, config.creations_per_second), (7, 0, Some(10)));
        assert_eq!(config.max_of_hosts, [("localhost".to_owned(), 3), ("::1".to_owned(), 4)]);
    }

    fn resolve(file: &[(&str, &str)]) -> ConnectionConfig {
        let file: StaticConfigs =
            file.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        ConnectionConfig::resolve(&BrokerView::new(&Configs::default(), "1", &file))
    }
}
