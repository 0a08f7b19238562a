//! What is done with a log that is no beginning of the source's, once it may be: what is dropped, and what is copied
//! before.
//!
//! Invariants:
//! * what holds a record is exported before it is dropped;
//! * behind what is kept nothing is left that the source has not;
//! * a compacted log that held records of its own is not kept in part: an older value of a key that the source still
//!   has may be gone already. It is exported whole.

use tarn_record::Offset;

use crate::divergence::Divergence;
use crate::local_cluster::{Export, Suffix, Truncate};
use crate::reasons::Reason;

/// Why something may be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// There is no record in it: it ended the log for its mirror, or the log is empty.
    NoRecords,
    /// The operator has allowed it, for this version of the binding.
    Consent,
    /// The configuration allows it, for so few records.
    Configured,
}

/// How a log is truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruncationPlan {
    /// As what its divergence was found.
    pub reason: Reason,
    /// Why it may be.
    pub ground: Ground,
    /// Where it ended when this was decided.
    pub log_end: Offset,
    /// What is dropped.
    pub truncate: Truncate,
    /// From where on it is exported before.
    pub export_from: Option<Offset>,
}

impl TruncationPlan {
    /// What is done with this log.
    pub fn of(divergence: &Divergence, reason: Reason, ground: Ground) -> TruncationPlan {
        let goes_whole = goes_whole(divergence);
        let truncate = match divergence.common {
            Some(point) if !goes_whole => Truncate::To(point.offset),
            _ => Truncate::Fully { start_at: divergence.source_log_start },
        };
        let holds_none = divergence.suffix.holds_no_records();
        let is_exported = !holds_none || (divergence.common.is_some() && goes_whole);
        // In a compacted log a common point may rest on leader epochs alone, and the source may lack what is below it.
        let export_from =
            is_exported.then_some(if goes_whole { divergence.log_start } else { divergence.from });
        TruncationPlan { reason, ground, log_end: divergence.log_end, truncate, export_from }
    }

    /// What an operator is told of the export.
    pub fn said(&self, export: &Export) -> String {
        let Export { broker, from, records, path, .. } = export;
        let last = export.to.plus(-1);
        let what = format!("offsets {from} to {last} ({})", counted(*records));
        match (self.truncate, self.reason) {
            (Truncate::Fully { .. }, _) => {
                format!("all of the log, {what}, is exported to {path} on node {broker} and mirrored again")
            }
            (Truncate::To(_), Reason::LocalRecords) => {
                format!("{what} were not brought by this mirror and are exported to {path} on node {broker}")
            }
            (Truncate::To(_), _) => {
                format!("{what} were not the source's and are exported to {path} on node {broker}")
            }
        }
    }
}

/// What an operator is told of an export by who has only found what is noted of it.
pub fn said_of_found(export: &Export) -> String {
    let Export { broker, from, records, path, .. } = export;
    let last = export.to.plus(-1);
    let records = counted(*records);
    format!(
        "offsets {from} to {last} ({records}) are not in the log any more and are exported to {path} on node {broker}"
    )
}

fn counted(records: u64) -> String {
    Suffix { records, ..Suffix::default() }.to_string()
}

/// True where all of the log is dropped and mirrored again.
pub fn goes_whole(divergence: &Divergence) -> bool {
    divergence.common.is_none() || (divergence.compacted && !divergence.is_control_alone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alignment::Content;
    use crate::divergence::tests::found;
    use tarn_record::BrokerId;

    #[test]
    fn what_only_this_log_has_is_exported_and_dropped() {
        let plan = planned(Content::Local, Some(100), 20, false);
        assert_eq!((plan.ground, plan.log_end), (Ground::Consent, Offset(150)));
        assert_eq!((plan.truncate, plan.export_from), (Truncate::To(Offset(100)), Some(Offset(100))));
    }

    #[test]
    fn what_holds_no_records_is_dropped_without_a_copy() {
        let plan = planned(Content::Local, Some(100), 0, true);
        assert_eq!(plan.export_from, None);
        let kept = Truncate::To(Offset(100));
        assert_eq!(plan.truncate, kept, "nothing was compacted away for the sake of a marker");
    }

    #[test]
    fn a_compacted_log_with_records_of_its_own_is_mirrored_again_from_the_beginning() {
        let all = Truncate::Fully { start_at: Offset(7) };
        let plan = planned(Content::Local, Some(100), 20, true);
        assert_eq!(plan.truncate, all);
        assert_eq!(plan.export_from, Some(Offset(40)), "the source may lack any of it");
        let nothing_common = planned(Content::Local, None, 90, false);
        assert_eq!((nothing_common.truncate, nothing_common.export_from), (all, Some(Offset(40))));
    }

    #[test]
    fn what_is_said_of_an_export_names_the_range_and_where_it_is() {
        let export = Export {
            broker: BrokerId(3),
            path: "/exports/t-0".into(),
            from: Offset(100),
            to: Offset(150),
            records: 20,
            bytes: 9,
        };
        let said = |content, compacted| planned(content, Some(100), 20, compacted).said(&export);
        let (what, place) = ("offsets 100 to 149 (20 records)", "exported to /exports/t-0 on node 3");
        let expected = [
            (said(Content::Mirrored, false), "were not the source's"),
            (said(Content::Local, false), "were not brought by this mirror"),
            (said(Content::Local, true), "mirrored again"),
        ];
        for (said, why) in expected {
            assert!(said.contains(what) && said.contains(place) && said.contains(why), "{said}");
        }
    }

    fn planned(content: Content, common: Option<i64>, records: u64, compacted_there: bool) -> TruncationPlan {
        let found = found(content, common, records, compacted_there);
        let (reason, divergence) = found.divergence().expect("it goes on nowhere");
        TruncationPlan::of(divergence, reason, Ground::Consent)
    }
}
