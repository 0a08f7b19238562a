//! What may be dropped of a log that is no beginning of the source's: nothing that holds a record, but where the
//! operator consents, or the configuration gives so few records of a divergence up.
//!
//! Invariants:
//! * a record is dropped only by the operator's consent, or, where only this mirror has filled the log, by the
//!   topic's configuration;
//! * what would cost the whole log is never dropped by the configuration alone.

use crate::divergence::{Alignment, Divergence};
use crate::reasons::Reason;
use crate::truncation::{Ground, TruncationPlan, goes_whole};

/// What may be dropped beside what holds no records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// The operator's consent is there, and not used yet.
    pub consent: bool,
    /// How many records of a divergence the configuration gives up, if any.
    pub divergence_records_max: Option<u64>,
}

impl Alignment {
    /// How the log may be truncated where it is no beginning of the source's; `None` where it goes on.
    ///
    /// # Errors
    /// Why nothing may be dropped: the reason, and a sentence with the range.
    pub fn truncation(&self, allowed: Allowed) -> Option<Result<TruncationPlan, (Reason, String)>> {
        let (reason, divergence) = self.divergence()?;
        let is_few = allowed.divergence_records_max.is_some_and(|max| !divergence.has_more_than(max));
        let is_given_up = is_few && reason == Reason::SourceTruncated && !goes_whole(divergence);
        let ground = match () {
            () if divergence.holds_nothing(reason) => Ground::NoRecords,
            () if allowed.consent => Ground::Consent,
            () if is_given_up => Ground::Configured,
            () => return Some(Err((reason, refusal(divergence, reason, allowed)))),
        };
        Some(Ok(TruncationPlan::of(divergence, reason, ground)))
    }
}

fn refusal(divergence: &Divergence, reason: Reason, allowed: Allowed) -> String {
    let mut said = divergence.to_string();
    if let (Reason::SourceTruncated, Some(max)) = (reason, allowed.divergence_records_max)
        && divergence.has_more_than(max)
    {
        said.push_str(&format!(", more than mirror.divergence.max.records={max}"));
    }
    if divergence.compacted && goes_whole(divergence) {
        said.push_str("; the topic is compacted, so all of it would have to be mirrored again");
    }
    said.push_str("; recover --allow-truncation exports and drops them");
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alignment::Content;
    use crate::common_point::CommonPoint;
    use crate::divergence::tests::{found, ours, rest, source};
    use crate::divergence::{Rest, judge};
    use crate::local_cluster::{LogEnds, Suffix, Truncate};
    use tarn_record::{Epoch, Offset};

    const CONSENT: Allowed = Allowed { consent: true, divergence_records_max: None };

    #[test]
    fn nothing_with_a_record_in_it_is_dropped_unasked() {
        for content in [Content::Mirrored, Content::Local] {
            let alignment = found(content, Some(100), 20, false);
            let Some(Err((reason, why))) = alignment.truncation(Allowed::default()) else {
                panic!("{alignment:?}")
            };
            let expected =
                if content == Content::Local { Reason::LocalRecords } else { Reason::SourceTruncated };
            assert_eq!(reason, expected);
            assert!(
                why.contains("offsets 100 to 149 (20 records)") && why.contains("--allow-truncation"),
                "{why}"
            );
        }
    }

    #[test]
    fn what_ended_the_log_for_its_mirror_is_dropped_unasked_and_markers_of_the_source_are_not() {
        let plan = planned(found(Content::Local, Some(100), 0, true), Allowed::default());
        assert_eq!((plan.ground, plan.export_from), (Ground::NoRecords, None));
        assert_eq!(
            plan.truncate,
            Truncate::To(Offset(100)),
            "nothing was compacted away for the sake of a marker"
        );
        let lost_markers = found(Content::Mirrored, Some(100), 0, false);
        assert!(matches!(
            lost_markers.truncation(Allowed::default()),
            Some(Err((Reason::SourceTruncated, _)))
        ));
        let plan = planned(lost_markers, CONSENT);
        assert_eq!((plan.ground, plan.export_from), (Ground::Consent, None));
    }

    #[test]
    fn a_marker_below_the_last_mirror_position_is_the_sources_and_not_dropped_unasked() {
        let Alignment::LocalRecords(found) = found(Content::Local, Some(90), 0, false) else {
            panic!("it is local")
        };
        let suffix = Suffix { control_records: 60, ..Suffix::default() };
        let below = Alignment::LocalRecords(Divergence { suffix, ..found });
        assert!(matches!(below.truncation(Allowed::default()), Some(Err((Reason::LocalRecords, _)))));
        assert_eq!(planned(below, CONSENT).truncate, Truncate::To(Offset(90)));
    }

    #[test]
    fn where_a_cleaner_has_been_no_records_are_no_proof_that_there_were_none() {
        let Alignment::LocalRecords(found) = found(Content::Local, Some(100), 0, true) else {
            panic!("it is local")
        };
        let suffix = Suffix { control_records: 49, ..Suffix::default() };
        let cleaned = Alignment::LocalRecords(Divergence { suffix, ..found });
        assert!(matches!(cleaned.truncation(Allowed::default()), Some(Err((Reason::LocalRecords, _)))));
        let plan = planned(cleaned, CONSENT);
        assert_eq!(plan.truncate, Truncate::Fully { start_at: Offset(7) });
        assert_eq!(plan.export_from, Some(Offset(40)));
    }

    #[test]
    fn what_would_cost_the_whole_log_is_not_given_up_by_the_configuration() {
        let up_to = Allowed { consent: false, divergence_records_max: Some(99) };
        for (common, compacted) in [(Some(100), true), (None, false)] {
            let Some(Err((reason, why))) = found(Content::Mirrored, common, 20, compacted).truncation(up_to)
            else {
                panic!("it is asked for")
            };
            assert_eq!(reason, Reason::SourceTruncated);
            assert!(!why.contains("more than"), "20 are no more than 99: {why}");
        }
    }

    #[test]
    fn an_empty_log_is_begun_again_and_nobody_is_asked() {
        let empty = LogEnds { log_start: Offset(150), ..ours() };
        for content in [Content::Mirrored, Content::Local] {
            let found = judge(&empty, content, &source(), None, rest(0, false));
            let plan = planned(found, Allowed::default());
            assert_eq!((plan.ground, plan.export_from), (Ground::NoRecords, None));
            assert_eq!(plan.truncate, Truncate::Fully { start_at: Offset(7) });
        }
    }

    #[test]
    fn what_was_not_counted_to_its_end_is_more_than_the_configuration_gives_up() {
        let suffix = Suffix { records: 20, control_records: 0, has_more: true };
        let rest = Rest { suffix, ..rest(0, false) };
        let common = Some(CommonPoint { epoch: Epoch(4), offset: Offset(100) });
        let found = |content| judge(&ours(), content, &source(), common, rest.clone());
        let allowed = Allowed { consent: false, divergence_records_max: Some(20) };
        let Some(Err((_, why))) = found(Content::Mirrored).truncation(allowed) else { panic!("it is asked") };
        assert!(why.contains("offsets 100 to 149 (more than 20 records)"), "{why}");
        let none_seen = Suffix { records: 0, ..suffix };
        let unseen =
            judge(&ours(), Content::Local, &source(), common, Rest { suffix: none_seen, ..rest.clone() });
        assert!(matches!(unseen.truncation(allowed), Some(Err((Reason::LocalRecords, _)))));
        assert_eq!(planned(found(Content::Local), CONSENT).export_from, Some(Offset(100)));
    }

    #[test]
    fn the_configuration_gives_up_a_few_records_of_a_divergence_and_no_local_ones() {
        let up_to = |max| Allowed { consent: false, divergence_records_max: Some(max) };
        assert_eq!(
            planned(found(Content::Mirrored, Some(100), 20, false), up_to(20)).ground,
            Ground::Configured
        );
        let more = found(Content::Mirrored, Some(100), 20, false).truncation(up_to(19));
        assert!(matches!(&more, Some(Err((_, why))) if why.contains("max.records=19")), "{more:?}");
        assert!(matches!(found(Content::Local, Some(100), 20, false).truncation(up_to(99)), Some(Err(_))));
    }

    fn planned(alignment: Alignment, allowed: Allowed) -> TruncationPlan {
        match alignment.truncation(allowed) {
            Some(Ok(plan)) => plan,
            other => panic!("{alignment:?} is {other:?}"),
        }
    }
}
