//! A log that is no beginning of the source's: what stands here alone, what may be dropped of it, and on which ground.
//!
//! Invariants:
//! * a record is dropped only by the operator's consent, or, where only this mirror has filled the log, by the
//!   topic's configuration; and it is exported first;
//! * behind what is kept nothing is left that the source has not;
//! * a compacted log that held records of its own is not kept in part: an older value of a key that the source still
//!   has may be gone already. It is exported whole, and never dropped by the configuration alone.

use std::fmt;

use tarn_record::Offset;

use crate::alignment::{Content, GoOn, SourceLog, go_on};
use crate::common_point::CommonPoint;
use crate::local_cluster::{Cut, LogEnds, Suffix};
use crate::reasons::Reason;

/// What to do with a partition, once both histories were compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// Fetch from here.
    GoOn(GoOn),
    /// The source has lost what is here: nothing may be appended.
    Diverged(Parted),
    /// There are records here that no mirror has brought: nothing may be appended.
    LocalRecords(Parted),
}

/// A log that is no beginning of the source's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parted {
    /// What told so.
    pub why: String,
    /// Up to where the source has what is here; `None` where nothing is known to be common.
    pub common: Option<CommonPoint>,
    /// The log start.
    pub log_start: Offset,
    /// The first offset that only this log has.
    pub from: Offset,
    /// The log end.
    pub log_end: Offset,
    /// What stands between them.
    pub suffix: Suffix,
    /// Up to where this mirror has filled it.
    pub mirrored_end: Offset,
    /// Where the source's log begins.
    pub source_log_start: Offset,
    /// Whether one of the logs is compacted.
    pub compacted: bool,
}

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

/// What may be dropped beside what holds no records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// The operator's consent is there, and not used yet.
    pub consent: bool,
    /// How many records of a divergence the configuration gives up, if any.
    pub divergence_records_max: Option<u64>,
}

/// What becomes of a log that has parted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cutting {
    /// As what it was found.
    pub reason: Reason,
    /// Why it may be cut.
    pub ground: Ground,
    /// Where it ended when this was decided.
    pub log_end: Offset,
    /// What is dropped.
    pub cut: Cut,
    /// From where on it is exported before.
    pub export_from: Option<Offset>,
}

/// What the search has come to.
pub fn judge(
    ours: &LogEnds,
    content: Content,
    source: &SourceLog,
    common: Option<CommonPoint>,
    rest: Rest,
) -> Alignment {
    if let Some(point) = common.filter(|point| point.offset >= ours.log_end) {
        return Alignment::GoOn(go_on(ours, point.epoch, source));
    }
    let parted = Parted {
        why: rest.why,
        common,
        log_start: ours.log_start,
        from: common.map_or(ours.log_start, |point| point.offset),
        log_end: ours.log_end,
        suffix: rest.suffix,
        mirrored_end: rest.mirrored_end,
        source_log_start: source.log_start,
        compacted: ours.compacted || rest.compacted_there,
    };
    match content {
        Content::Mirrored => Alignment::Diverged(parted),
        Content::Local => Alignment::LocalRecords(parted),
    }
}

/// What else is known of a log whose common point was searched for.
#[derive(Clone, Debug)]
pub struct Rest {
    /// Why it was.
    pub why: String,
    /// What stands from there on.
    pub suffix: Suffix,
    /// Up to where this mirror has filled it.
    pub mirrored_end: Offset,
    /// Whether the source compacts the topic.
    pub compacted_there: bool,
}

impl Alignment {
    /// What may be cut of a log that has parted; `None` where it goes on.
    ///
    /// # Errors
    /// Why nothing may be dropped: the reason, and a sentence with the range.
    pub fn cutting(&self, allowed: Allowed) -> Option<Result<Cutting, (Reason, String)>> {
        let (reason, parted) = match self {
            Alignment::GoOn(_) => return None,
            Alignment::Diverged(parted) => (Reason::SourceTruncated, parted),
            Alignment::LocalRecords(parted) => (Reason::LocalRecords, parted),
        };
        let is_few = allowed.divergence_records_max.is_some_and(|max| !parted.has_more_than(max));
        let ground = match () {
            () if parted.holds_nothing(reason) => Ground::NoRecords,
            () if allowed.consent => Ground::Consent,
            () if is_few && reason == Reason::SourceTruncated && !parted.goes_whole() => Ground::Configured,
            () => return Some(Err((reason, parted.refusal(reason, allowed)))),
        };
        Some(Ok(parted.cutting(reason, ground)))
    }
}

impl Parted {
    /// True where nothing but what ended the log for its mirror would be dropped. A marker that the source had and has
    /// not any more is none of that, nor is what a cleaner has left of somebody's records.
    fn holds_nothing(&self, reason: Reason) -> bool {
        let is_of_the_end = reason == Reason::LocalRecords && self.from >= self.mirrored_end;
        self.from >= self.log_end || (is_of_the_end && self.is_control_alone())
    }

    /// True where there are control records behind what is common, and never was anything else.
    fn is_control_alone(&self) -> bool {
        let offsets = self.log_end.0.saturating_sub(self.from.0);
        self.suffix.holds_no_records() && u64::try_from(offsets) == Ok(self.suffix.control_records)
    }

    /// True where all of the log is dropped and mirrored again.
    fn goes_whole(&self) -> bool {
        self.common.is_none() || (self.compacted && !self.is_control_alone())
    }

    fn has_more_than(&self, records_max: u64) -> bool {
        self.suffix.has_more || self.suffix.records > records_max
    }

    fn cutting(&self, reason: Reason, ground: Ground) -> Cutting {
        let is_exported = !self.suffix.holds_no_records() || (self.common.is_some() && self.goes_whole());
        let cut = match self.common {
            Some(point) if !self.goes_whole() => Cut::From(point.offset),
            _ => Cut::All { begins_at: self.source_log_start },
        };
        // In a compacted log a common point may rest on leader epochs alone, and the source may lack what is below it.
        let export_from = is_exported.then_some(if self.goes_whole() { self.log_start } else { self.from });
        Cutting { reason, ground, log_end: self.log_end, cut, export_from }
    }

    fn refusal(&self, reason: Reason, allowed: Allowed) -> String {
        let mut said = self.to_string();
        if let (Reason::SourceTruncated, Some(max)) = (reason, allowed.divergence_records_max)
            && self.has_more_than(max)
        {
            said.push_str(&format!(", more than mirror.divergence.max.records={max}"));
        }
        if self.compacted && self.goes_whole() {
            said.push_str("; the topic is compacted, so all of it would have to be mirrored again");
        }
        said.push_str("; recover --allow-truncation exports and drops them");
        said
    }
}

/// The range, and what told so.
impl fmt::Display for Parted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parted { why, from, log_end, suffix, .. } = self;
        let last = log_end.plus(-1);
        write!(f, "{why}: offsets {from} to {last} ({suffix}) are here and not at the source")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::Epoch;

    const CONSENT: Allowed = Allowed { consent: true, divergence_records_max: None };

    #[test]
    fn nothing_with_a_record_in_it_is_dropped_unasked() {
        for content in [Content::Mirrored, Content::Local] {
            let alignment = parted(content, Some(100), 20, false);
            let Some(Err((reason, why))) = alignment.cutting(Allowed::default()) else {
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
    fn with_consent_what_only_this_log_has_is_exported_and_cut() {
        let cutting = cut(parted(Content::Local, Some(100), 20, false), CONSENT);
        assert_eq!((cutting.ground, cutting.log_end), (Ground::Consent, Offset(150)));
        assert_eq!((cutting.cut, cutting.export_from), (Cut::From(Offset(100)), Some(Offset(100))));
    }

    #[test]
    fn what_ended_the_log_for_its_mirror_is_cut_unasked_and_markers_of_the_source_are_not() {
        let cutting = cut(parted(Content::Local, Some(100), 0, true), Allowed::default());
        assert_eq!((cutting.ground, cutting.export_from), (Ground::NoRecords, None));
        assert_eq!(
            cutting.cut,
            Cut::From(Offset(100)),
            "nothing was compacted away for the sake of a marker"
        );
        let lost_markers = parted(Content::Mirrored, Some(100), 0, false);
        assert!(matches!(lost_markers.cutting(Allowed::default()), Some(Err((Reason::SourceTruncated, _)))));
        let cutting = cut(lost_markers, CONSENT);
        assert_eq!((cutting.ground, cutting.export_from), (Ground::Consent, None));
    }

    #[test]
    fn a_marker_below_the_last_mirror_position_is_the_sources_and_not_cut_unasked() {
        let Alignment::LocalRecords(found) = parted(Content::Local, Some(90), 0, false) else {
            panic!("it is local")
        };
        let suffix = Suffix { control_records: 60, ..Suffix::default() };
        let below = Alignment::LocalRecords(Parted { suffix, ..found });
        assert!(matches!(below.cutting(Allowed::default()), Some(Err((Reason::LocalRecords, _)))));
        assert_eq!(cut(below, CONSENT).cut, Cut::From(Offset(90)));
    }

    #[test]
    fn where_a_cleaner_has_been_no_records_are_no_proof_that_there_were_none() {
        let Alignment::LocalRecords(found) = parted(Content::Local, Some(100), 0, true) else {
            panic!("it is local")
        };
        let suffix = Suffix { control_records: 49, ..Suffix::default() };
        let cleaned = Alignment::LocalRecords(Parted { suffix, ..found });
        assert!(matches!(cleaned.cutting(Allowed::default()), Some(Err((Reason::LocalRecords, _)))));
        let cutting = cut(cleaned, CONSENT);
        assert_eq!(cutting.cut, Cut::All { begins_at: Offset(7) });
        assert_eq!(cutting.export_from, Some(Offset(40)));
    }

    #[test]
    fn what_would_cost_the_whole_log_is_not_given_up_by_the_configuration() {
        let up_to = Allowed { consent: false, divergence_records_max: Some(99) };
        for (common, compacted) in [(Some(100), true), (None, false)] {
            let Some(Err((reason, why))) = parted(Content::Mirrored, common, 20, compacted).cutting(up_to)
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
            let cutting = cut(found, Allowed::default());
            assert_eq!((cutting.ground, cutting.export_from), (Ground::NoRecords, None));
            assert_eq!(cutting.cut, Cut::All { begins_at: Offset(7) });
        }
    }

    #[test]
    fn what_was_not_counted_to_its_end_is_more_than_the_configuration_gives_up() {
        let suffix = Suffix { records: 20, control_records: 0, has_more: true };
        let rest = Rest { suffix, ..rest(0, false) };
        let common = Some(CommonPoint { epoch: Epoch(4), offset: Offset(100) });
        let found = |content| judge(&ours(), content, &source(), common, rest.clone());
        let allowed = Allowed { consent: false, divergence_records_max: Some(20) };
        let Some(Err((_, why))) = found(Content::Mirrored).cutting(allowed) else { panic!("it is asked") };
        assert!(why.contains("offsets 100 to 149 (more than 20 records)"), "{why}");
        let none_seen = Suffix { records: 0, ..suffix };
        let unseen =
            judge(&ours(), Content::Local, &source(), common, Rest { suffix: none_seen, ..rest.clone() });
        assert!(matches!(unseen.cutting(allowed), Some(Err((Reason::LocalRecords, _)))));
        assert_eq!(cut(found(Content::Local), CONSENT).export_from, Some(Offset(100)));
    }

    #[test]
    fn the_configuration_gives_up_a_few_records_of_a_divergence_and_no_local_ones() {
        let up_to = |max| Allowed { consent: false, divergence_records_max: Some(max) };
        assert_eq!(
            cut(parted(Content::Mirrored, Some(100), 20, false), up_to(20)).ground,
            Ground::Configured
        );
        let more = parted(Content::Mirrored, Some(100), 20, false).cutting(up_to(19));
        assert!(matches!(&more, Some(Err((_, why))) if why.contains("max.records=19")), "{more:?}");
        assert!(matches!(parted(Content::Local, Some(100), 20, false).cutting(up_to(99)), Some(Err(_))));
    }

    #[test]
    fn a_compacted_log_with_records_of_its_own_is_mirrored_again_from_the_beginning() {
        let all = Cut::All { begins_at: Offset(7) };
        let cutting = cut(parted(Content::Local, Some(100), 20, true), CONSENT);
        assert_eq!(
            (cutting.cut, cutting.export_from),
            (all, Some(Offset(40))),
            "the source may lack any of it"
        );
        let nothing_common = cut(parted(Content::Local, None, 90, false), CONSENT);
        assert_eq!((nothing_common.cut, nothing_common.export_from), (all, Some(Offset(40))));
    }

    #[test]
    fn a_log_whose_end_the_source_has_goes_on_there() {
        let common = Some(CommonPoint { epoch: Epoch(4), offset: Offset(150) });
        for content in [Content::Mirrored, Content::Local] {
            let found = judge(&ours(), content, &source(), common, rest(0, false));
            let Alignment::GoOn(GoOn { from, last_epoch, gap, .. }) = found else { panic!("{found:?}") };
            assert_eq!((from, last_epoch, gap), (Offset(150), Epoch(4), None));
        }
    }

    fn cut(alignment: Alignment, allowed: Allowed) -> Cutting {
        match alignment.cutting(allowed) {
            Some(Ok(cutting)) => cutting,
            other => panic!("{alignment:?} is {other:?}"),
        }
    }

    fn parted(content: Content, common: Option<i64>, records: u64, compacted_there: bool) -> Alignment {
        let common = common.map(|offset| CommonPoint { epoch: Epoch(4), offset: Offset(offset) });
        judge(&ours(), content, &source(), common, rest(records, compacted_there))
    }

    fn rest(records: u64, compacted_there: bool) -> Rest {
        let control_records = if records == 0 { 50 } else { 2 };
        let suffix = Suffix { records, control_records, has_more: false };
        let (why, mirrored_end) = ("the source is another".to_owned(), Offset(100));
        Rest { why, suffix, mirrored_end, compacted_there }
    }

    fn ours() -> LogEnds {
        LogEnds {
            log_start: Offset(40),
            log_end: Offset(150),
            high_watermark: Offset(150),
            latest_epoch: Epoch(6),
            leader_epoch: Epoch(9),
            compacted: false,
        }
    }

    fn source() -> SourceLog {
        SourceLog { log_start: Offset(7), high_watermark: Offset(300), epoch_end: None }
    }
}
