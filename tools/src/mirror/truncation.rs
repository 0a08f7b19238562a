//! What would be dropped of a partition so that it can be mirrored, as a cluster tells it.

use serde::Serialize;
use tarn_mirror::reasons::Reason;
use tarn_wire::messages::{recover_mirror_topics_response, start_mirror_topics_response};

/// How many are listed at most.
const LISTED_MAX: usize = 100;

/// Offsets of a partition that are here and not at the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Truncation {
    pub(super) topic: String,
    pub(super) partition: i32,
    /// The first offset and the one after the last; `None` where it is not known.
    pub(super) range: Option<(i64, i64)>,
    /// How many records are in between; `None` where that was not counted to the end.
    pub(super) records: Option<i64>,
    /// Why the partition cannot be mirrored as it is; `None` where the answer as a whole says it.
    pub(super) reason: Option<Reason>,
    /// Below which directory of which node it would be exported.
    pub(super) export: Option<(i32, String)>,
}

macro_rules! read_from {
    ($($response:ident),*) => {$(
        impl From<(&str, &$response::MirrorTruncation)> for Truncation {
            fn from((topic, told): (&str, &$response::MirrorTruncation)) -> Truncation {
                let export = told.export_directory.as_deref();
                Truncation {
                    topic: topic.to_owned(),
                    partition: told.partition_index,
                    range: (told.from_offset >= 0).then_some((told.from_offset, told.to_offset)),
                    records: (told.records >= 0).then_some(told.records),
                    reason: told.reason_code.as_deref().and_then(Reason::from_code),
                    export: export.map(|directory| (told.export_broker_id, directory.to_owned())),
                }
            }
        }
    )*};
}

read_from!(start_mirror_topics_response, recover_mirror_topics_response);

impl Truncation {
    /// What it would cost where it is allowed; `as_of` says of when that is known.
    pub(super) fn would_go(&self, as_of: &str) -> String {
        let place = match &self.export {
            Some((node, directory)) => format!("under {directory} on node {node}"),
            None => "on the node that leads it".to_owned(),
        };
        format!("{}: {}, {as_of}, would be exported {place} and dropped", self.named(), self.said())
    }

    /// What stands in the way where it is not.
    pub(super) fn stands_apart(&self) -> String {
        format!("{}: {}{}", self.named(), self.said(), self.because())
    }

    /// The partition with its offsets.
    pub(super) fn offsets(&self) -> String {
        let range = self.range.map_or("not known".to_owned(), |(from, to)| format!("{from} to {}", to - 1));
        format!("partition {}: offsets {range}", self.partition)
    }

    fn named(&self) -> String {
        format!("{}-{}", self.topic, self.partition)
    }

    fn said(&self) -> String {
        let Some((from, to)) = self.range else {
            return "what only this cluster has, of which the range is not known".to_owned();
        };
        let records = match self.records {
            Some(1) => "1 record".to_owned(),
            Some(records) => format!("{records} records"),
            None => "records not counted".to_owned(),
        };
        format!("offsets {from} to {} ({records})", to - 1)
    }

    fn because(&self) -> String {
        self.reason.map(|reason| format!(", {reason}")).unwrap_or_default()
    }
}

/// One line for each, and how many more there are.
pub(super) fn lines(all: &[Truncation], line: impl Fn(&Truncation) -> String) -> Vec<String> {
    let mut lines: Vec<String> = all.iter().take(LISTED_MAX).map(line).collect();
    match all.len().saturating_sub(LISTED_MAX) {
        0 => {}
        1 => lines.push("and 1 more partition".to_owned()),
        more => lines.push(format!("and {more} more partitions")),
    }
    lines
}

/// What would be dropped, in JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TruncationJson<'a> {
    topic: &'a str,
    partition: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<i64>,
    /// The offset after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason_code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    export_broker_id: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    export_directory: Option<&'a str>,
}

impl<'a> From<&'a Truncation> for TruncationJson<'a> {
    fn from(truncation: &'a Truncation) -> TruncationJson<'a> {
        TruncationJson {
            topic: &truncation.topic,
            partition: truncation.partition,
            from: truncation.range.map(|(from, _)| from),
            to: truncation.range.map(|(_, to)| to),
            records: truncation.records,
            reason_code: truncation.reason.map(Reason::code),
            export_broker_id: truncation.export.as_ref().map(|(node, _)| *node),
            export_directory: truncation.export.as_ref().map(|(_, directory)| directory.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_a_partition_is_read_with_what_is_not_known_left_open() {
        let told = recover_mirror_topics_response::MirrorTruncation {
            partition_index: 3,
            from_offset: 100,
            to_offset: 350,
            records: 250,
            reason_code: Some("SOURCE_TRUNCATED".into()),
            export_broker_id: 1,
            export_directory: Some("/exports/orders-3".into()),
        };
        let read = Truncation::from(("orders", &told));
        let expected = "orders-3: offsets 100 to 349 (250 records), as it was, would be exported under \
                        /exports/orders-3 on node 1 and dropped";
        assert_eq!(read.would_go("as it was"), expected);
        assert_eq!(read.stands_apart(), "orders-3: offsets 100 to 349 (250 records), SOURCE_TRUNCATED");
        let json = serde_json::to_value(TruncationJson::from(&read)).unwrap();
        let expected = serde_json::json!({
            "topic": "orders", "partition": 3, "from": 100, "to": 350, "records": 250,
            "reasonCode": "SOURCE_TRUNCATED", "exportBrokerId": 1, "exportDirectory": "/exports/orders-3",
        });
        assert_eq!(json, expected);

        let told = start_mirror_topics_response::MirrorTruncation {
            from_offset: -1,
            to_offset: -1,
            ..Default::default()
        };
        let unknown = Truncation::from(("orders", &told));
        let json = serde_json::to_value(TruncationJson::from(&unknown)).unwrap();
        assert_eq!(json, serde_json::json!({ "topic": "orders", "partition": 0 }));
        let said = "orders-0: what only this cluster has, of which the range is not known";
        assert_eq!(unknown.stands_apart(), said);
        assert_eq!(unknown.offsets(), "partition 0: offsets not known");
    }

    #[test]
    fn of_many_only_some_are_listed() {
        let said = |count: i32| {
            let all: Vec<Truncation> =
                (0..count).map(|partition| Truncation { partition, ..Truncation::default() }).collect();
            lines(&all, Truncation::offsets)
        };
        assert_eq!(said(2).len(), 2);
        assert_eq!(said(101)[100], "and 1 more partition");
        assert_eq!(said(250)[100], "and 150 more partitions");
    }
}
