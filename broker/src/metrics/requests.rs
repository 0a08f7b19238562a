//! The requests that one core serves, by API.

use std::time::Duration;

use tarn_metrics::{Counter, Timer};
use tarn_wire::{ApiKey, ErrorCode, Response};

use super::errors::{ErrorCounts, Errors};
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
    /// What of it the node worked for the request, on whichever core and disk. Of the APIs that wait for something to
    /// happen; for all others that is all of it.
    pub local: Timer,
    /// What of it such a request waited.
    pub remote: Timer,
    /// Errors in answers, `NONE` included.
    pub errors: Errors,
    /// Requests that ended their connection instead.
    pub closed: Counter,
}

/// The APIs whose requests wait for something to happen, which is not work for them.
pub const WAITING: &[ApiKey] = &[ApiKey::FETCH];

impl Default for Requests {
    fn default() -> Requests {
        let of_api = |&(key, min, max): &(ApiKey, i16, i16)| OfApi {
            key,
            min,
            versions: (min..=max).map(|_| Counter::default()).collect(),
            total: Timer::default(),
            local: Timer::default(),
            remote: Timer::default(),
            errors: Errors::default(),
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

    /// How the time of an answer is shared between work for it and waiting for something to happen.
    pub fn split(&self, key: ApiKey, local: Duration, remote: Duration) {
        if let Some(api) = self.of(key) {
            api.local.note(local);
            api.remote.note(remote);
        }
    }

    /// A response is about to be written in this version: its errors count.
    pub fn told<R: Response>(&self, version: i16, response: &R) {
        if let Some(api) = self.of(ApiKey(R::KEY)) {
            ErrorCounts::each_run(version, response, |code, count| api.errors.add(code, count));
        }
    }

    /// The same of a response that was written before.
    pub fn errors(&self, key: ApiKey, errors: &ErrorCounts) {
        let counts = self
            .of(key)
            .into_iter()
            .flat_map(|api| errors.iter().map(move |(code, count)| (api, code, count)));
        counts.for_each(|(api, code, count)| api.errors.add(code, count));
    }

    /// These errors are told by hanging up.
    pub fn failed(&self, key: ApiKey, errors: impl Iterator<Item = ErrorCode>) {
        if let Some(api) = self.of(key) {
            errors.for_each(|code| api.errors.add(code, 1));
        }
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
