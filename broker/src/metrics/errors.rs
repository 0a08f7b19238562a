//! Errors in answers, by code.

use std::sync::OnceLock;

use tarn_metrics::Counter;
use tarn_wire::{ErrorCode, Response};

/// A counter for each code, in the order of all codes. Made when there is something to count.
#[derive(Debug, Default)]
pub struct Errors(OnceLock<Box<[Counter]>>);

/// The errors of one answer, each code once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts(Vec<(ErrorCode, u64)>);

impl Errors {
    /// So many more of a code; one that nobody knows counts as UNKNOWN_SERVER_ERROR, as clients see it.
    pub fn add(&self, code: ErrorCode, count: u64) {
        let counters = self.0.get_or_init(|| ErrorCode::all().map(|_| Counter::default()).collect());
        counters.get(code.place()).into_iter().for_each(|counter| counter.add(count));
    }

    /// The codes that have come, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (ErrorCode, u64)> {
        let counters = self.0.get().into_iter().flat_map(|counters| counters.iter());
        ErrorCode::all()
            .zip(counters)
            .map(|(code, counter)| (code, counter.get()))
            .filter(|(_, count)| *count > 0)
    }
}

impl ErrorCounts {
    /// Those of a response in this version.
    pub fn of<R: Response>(version: i16, response: &R) -> ErrorCounts {
        let mut counts: Vec<(ErrorCode, u64)> = Vec::new();
        ErrorCounts::each_run(version, response, |code, count| {
            match counts.iter_mut().find(|(known, _)| *known == code) {
                Some((_, known)) => *known += count,
                None => counts.push((code, count)),
            }
        });
        ErrorCounts(counts)
    }

    /// The same without memory for it: equal codes that follow each other are told at once, others again.
    pub(super) fn each_run<R: Response>(version: i16, response: &R, mut tell: impl FnMut(ErrorCode, u64)) {
        let mut run = (ErrorCode::NONE, 0);
        response.each_error(version, &mut |code| {
            if code == run.0 {
                run.1 += 1;
                return;
            }
            if run.1 > 0 {
                tell(run.0, run.1);
            }
            run = (code, 1);
        });
        if run.1 > 0 {
            tell(run.0, run.1);
        }
    }

    /// Each code, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (ErrorCode, u64)> {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_wire::messages::FetchResponse;
    use tarn_wire::messages::fetch_response::{FetchableTopicResponse, PartitionData};

    #[test]
    fn errors_are_counted_by_code_and_those_that_nobody_knows_as_one() {
        let partitions = [0, 6, 6, 0, 6].map(|error_code| PartitionData { error_code, ..Default::default() });
        let topic = FetchableTopicResponse { partitions: partitions.into(), ..Default::default() };
        let response = FetchResponse { responses: vec![topic], ..Default::default() };
        let counts = ErrorCounts::of(18, &response);
        let leader = ErrorCode::NOT_LEADER_OR_FOLLOWER;
        assert_eq!(counts.iter().collect::<Vec<_>>(), [(ErrorCode::NONE, 3), (leader, 3)]);

        let errors = Errors::default();
        assert_eq!(errors.iter().count(), 0);
        ErrorCounts::each_run(18, &response, |code, count| errors.add(code, count));
        errors.add(ErrorCode(30_000), 2);
        let told: Vec<_> = errors.iter().collect();
        assert_eq!(told, [(ErrorCode::UNKNOWN_SERVER_ERROR, 2), (ErrorCode::NONE, 3), (leader, 3)]);
    }
}
