//! The requests that one core serves, by API.

use std::time::Duration;

use tarn_metrics::{Counter, Timer};
use tarn_wire::ApiKey;

use crate::dispatch::SERVED;

/// See the module: one entry for each API that is served, in the order of that list.
#[derive(Debug)]
pub struct Requests(Box<[OfApi]>);

/// The requests of one API.
#[derive(Debug)]
pub struct OfApi {
    /// The API.
    pub key: ApiKey,
    /// The lowest version that is served; `versions` counts from it.
    pub min: i16,
    /// Requests, version by version.
    pub versions: Box<[Counter]>,
    /// From the request to its answer.
    pub total: Timer,
    /// Requests that ended their connection instead.
    pub closed: Counter,
}

impl Default for Requests {
    fn default() -> Requests {
        let of_api = |&(key, min, max): &(ApiKey, i16, i16)| OfApi {
            key,
            min,
            versions: (min..=max).map(|_| Counter::default()).collect(),
            total: Timer::default(),
            closed: Counter::default(),
        };
        Requests(SERVED.iter().map(of_api).collect())
    }
}

impl Requests {
    /// Every API.
    pub fn iter(&self) -> impl Iterator<Item = &OfApi> {
        self.0.iter()
    }

    /// A request has come.
    pub fn came(&self, key: ApiKey, version: i16) {
        let counter = self.of(key).and_then(|api| api.versions.get(usize::try_from(version - api.min).ok()?));
        counter.into_iter().for_each(|counter| counter.add(1));
    }

    /// It is answered.
    pub fn answered(&self, key: ApiKey, took: Duration) {
        self.of(key).into_iter().for_each(|api| api.total.note(took));
    }

    /// It ended its connection.
    pub fn closed(&self, key: ApiKey) {
        self.of(key).into_iter().for_each(|api| api.closed.add(1));
    }

    fn of(&self, key: ApiKey) -> Option<&OfApi> {
        self.0.iter().find(|api| api.key == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_api_and_version() {
        let requests = Requests::default();
        requests.came(ApiKey::PRODUCE, 13);
        requests.came(ApiKey::PRODUCE, 3);
        requests.came(ApiKey::PRODUCE, 2);
        requests.came(ApiKey(-1), 0);
        let produce = requests.of(ApiKey::PRODUCE).expect("it is served");
        let counts: Vec<u64> = produce.versions.iter().map(Counter::get).collect();
        assert_eq!((counts[0], counts[10], counts.iter().sum::<u64>()), (1, 1, 2));
    }
}
