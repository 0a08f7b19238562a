//! Which APIs there are: their keys, names and versions, as the schemas say.
//!
//! What a broker advertises is a choice made elsewhere, out of this table.

use std::fmt;

/// An API key: the number that begins every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiKey(pub i16);

/// One API of the schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiInfo {
    /// Its key.
    pub key: ApiKey,
    /// Its name, as Kafka spells it: `Produce`.
    pub name: &'static str,
    /// The lowest version.
    pub min: i16,
    /// The highest version.
    pub max: i16,
    /// The highest version that may be advertised: `max` less one where Kafka calls the last unstable.
    pub max_stable: i16,
    /// The first flexible version; `i16::MAX` where none is.
    pub flexible_from: i16,
    /// The listeners it is for.
    pub listeners: Listeners,
}

/// The kinds of listener that serve an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listeners {
    /// Those of brokers.
    pub broker: bool,
    /// Those of controllers.
    pub controller: bool,
}

include!(concat!(env!("OUT_DIR"), "/api_table.rs"));

/// The API with that key; `None` where the schemas have none.
pub fn api(key: ApiKey) -> Option<&'static ApiInfo> {
    API_TABLE.binary_search_by_key(&key, |each| each.key).ok().map(|at| &API_TABLE[at])
}

impl ApiInfo {
    /// Whether the schemas have that version.
    pub fn has_version(&self, version: i16) -> bool {
        (self.min..=self.max).contains(&version)
    }

    /// The version of the header of a request of that version, known or not.
    pub fn request_header_version(&self, version: i16) -> i16 {
        if version >= self.flexible_from { 2 } else { 1 }
    }
}

impl ApiKey {
    /// The API's name, or `None` for a number that is no API's.
    pub fn name(self) -> Option<&'static str> {
        api(self).map(|info| info.name)
    }
}

/// The name where there is one, else the number.
impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "API {}", self.0),
        }
    }
}
