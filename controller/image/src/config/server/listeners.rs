//! Where a node listens and what it tells others to connect to.

use std::fmt;

use super::reader::Reader;
use super::{ConfigError, Roles};

/// One listener or advertised address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name, in capitals.
    pub name: String,
    /// Host name or address; empty for all interfaces.
    pub host: String,
    /// Port; 0 lets the kernel choose.
    pub port: u16,
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brackets = self.host.contains(':');
        let (open, close) = if brackets { ("[", "]") } else { ("", "") };
        write!(f, "{}://{open}{}{close}:{}", self.name, self.host, self.port)
    }
}

/// Everything about listeners in one file.
pub(super) struct Names {
    pub(super) listeners: Vec<Listener>,
    pub(super) advertised: Vec<Listener>,
    pub(super) controllers: Vec<String>,
    pub(super) inter_broker: String,
}

impl Names {
    pub(super) fn read(reader: &Reader<'_>, roles: Roles) -> Result<Names, ConfigError> {
        let controllers: Vec<String> =
            reader.list("controller.listener.names")?.iter().map(|name| name.to_uppercase()).collect();
        let listeners = parse(reader, "listeners")?;
        if controllers.is_empty() {
            return Err(ConfigError::Inconsistent(
                "controller.listener.names must contain at least one value when running in KRaft mode"
                    .to_owned(),
            ));
        }
        refuse_protocols(reader, &listeners)?;
        let is_controller = |name: &str| controllers.iter().any(|known| known == name);
        if roles.controller && !listeners.iter().any(|listener| is_controller(&listener.name)) {
            return Err(ConfigError::Inconsistent(format!(
                "the listeners must contain one of controller.listener.names ({}) where process.roles contains controller",
                controllers.join(",")
            )));
        }
        let first_broker = listeners.iter().find(|listener| !is_controller(&listener.name));
        if roles.broker && first_broker.is_none() {
            return Err(ConfigError::Inconsistent(
                "the listeners must contain one that is not in controller.listener.names where process.roles contains broker"
                    .to_owned(),
            ));
        }
        if let Some(shared) = sharing_a_port(&listeners) {
            return Err(reader
                .refuse("listeners", &format!("each listener must have a different port, not {shared}")));
        }
        let inter_broker = inter_broker(reader, &listeners, first_broker)?;
        let advertised = advertised(reader, &listeners)?;
        Ok(Names { listeners, advertised, controllers, inter_broker })
    }
}

/// A port on which two listeners would listen at the same address.
fn sharing_a_port(listeners: &[Listener]) -> Option<u16> {
    let everywhere = |listener: &Listener| matches!(listener.host.as_str(), "" | "0.0.0.0" | "::");
    let clash = |one: &Listener, other: &Listener| {
        let same_address = one.host == other.host || everywhere(one) || everywhere(other);
        one.port == other.port && one.port != 0 && same_address
    };
    let clashing = |(at, one): (usize, &Listener)| listeners[..at].iter().any(|other| clash(one, other));
    let found = listeners.iter().enumerate().find(|&listener| clashing(listener));
    found.map(|(_, listener)| listener.port)
}

fn inter_broker(
    reader: &Reader<'_>,
    listeners: &[Listener],
    first_broker: Option<&Listener>,
) -> Result<String, ConfigError> {
    const KEY: &str = "inter.broker.listener.name";
    match reader.optional(KEY)?.map(|name| name.to_uppercase()) {
        Some(name) if listeners.iter().any(|listener| listener.name == name) => Ok(name),
        Some(_) => Err(reader.refuse(KEY, "no listener has this name")),
        None => {
            let plaintext = listeners.iter().find(|listener| listener.name == "PLAINTEXT");
            Ok(plaintext.or(first_broker).map(|listener| listener.name.clone()).unwrap_or_default())
        }
    }
}

/// What is advertised: the file's word, and for a listener it does not name, where it listens.
fn advertised(reader: &Reader<'_>, listeners: &[Listener]) -> Result<Vec<Listener>, ConfigError> {
    const KEY: &str = "advertised.listeners";
    let mut advertised = if reader.is_given(KEY) { parse(reader, KEY)? } else { Vec::new() };
    if let Some(nowhere) =
        advertised.iter().find(|listener| listener.host == "0.0.0.0" || listener.host == "::")
    {
        return Err(ConfigError::Inconsistent(format!(
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address: {nowhere}"
        )));
    }
    if let Some(unknown) = advertised.iter().find(|one| !listeners.iter().any(|known| known.name == one.name))
    {
        return Err(ConfigError::Inconsistent(format!(
            "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners: {unknown}"
        )));
    }
    for listener in listeners {
        if !advertised.iter().any(|known| known.name == listener.name) {
            let everywhere = matches!(listener.host.as_str(), "" | "0.0.0.0" | "::");
            let host = if everywhere { host_name() } else { listener.host.clone() };
            advertised.push(Listener { host, ..listener.clone() });
        }
    }
    for listener in &mut advertised {
        if listener.host.is_empty() {
            listener.host = host_name();
        }
    }
    Ok(advertised)
}

/// The name of this machine, which others are assumed to reach it by.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

fn parse(reader: &Reader<'_>, key: &'static str) -> Result<Vec<Listener>, ConfigError> {
    let mut listeners: Vec<Listener> = Vec::new();
    for text in reader.list(key)? {
        let listener = text
            .split_once("://")
            .and_then(|(name, address)| {
                let (host, port) = host_and_port(address)?;
                (!name.is_empty()).then(|| Listener { name: name.to_uppercase(), host, port })
            })
            .ok_or_else(|| reader.refuse(key, "NAME://host:port,... is expected"))?;
        if listeners.iter().any(|known| known.name == listener.name) {
            return Err(reader.refuse(key, "each listener must have a different name"));
        }
        listeners.push(listener);
    }
    if listeners.is_empty() {
        return Err(reader.refuse(key, "at least one listener is expected"));
    }
    Ok(listeners)
}

/// Only PLAINTEXT is there yet. A listener name that is no protocol needs an entry in the map, as in Kafka,
/// except that the controllers' defaults to PLAINTEXT.
fn refuse_protocols(reader: &Reader<'_>, listeners: &[Listener]) -> Result<(), ConfigError> {
    const KEY: &str = "listener.security.protocol.map";
    let entries = reader.list(KEY)?;
    let protocol_of = |name: &str| {
        entries
            .iter()
            .filter_map(|entry| entry.split_once(':'))
            .find(|(known, _)| known.trim().eq_ignore_ascii_case(name))
            .map(|(_, protocol)| protocol.trim().to_uppercase())
    };
    for listener in listeners {
        let protocol = protocol_of(&listener.name);
        match protocol.as_deref() {
            Some("PLAINTEXT") => {}
            None if !reader.is_given(KEY) => {}
            None => {
                return Err(ConfigError::Inconsistent(format!(
                    "No security protocol defined for listener {} in {KEY}",
                    listener.name
                )));
            }
            Some(other) => {
                return Err(ConfigError::Unsupported {
                    key: KEY,
                    value: format!("{}:{other}", listener.name),
                    why: "listeners are PLAINTEXT only",
                });
            }
        }
    }
    Ok(())
}

/// Reads `host:port` or `[address]:port`; the host may be empty.
pub fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.trim().rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_names_numbers_and_brackets() {
        assert_eq!(host_and_port("h:1"), Some(("h".into(), 1)));
        assert_eq!(host_and_port(":9092"), Some((String::new(), 9092)));
        assert_eq!(host_and_port("[::1]:7"), Some(("::1".into(), 7)));
        assert_eq!(host_and_port("::1:7"), None);
        assert_eq!(host_and_port("h"), None);
        assert_eq!(host_and_port("h:70000"), None);
    }

    #[test]
    fn an_address_with_colons_is_shown_in_brackets() {
        let listener = Listener { name: "A".into(), host: "::1".into(), port: 7 };
        assert_eq!(listener.to_string(), "A://[::1]:7");
    }
}
