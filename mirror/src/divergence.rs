//! A log that is no beginning of the source's: what the comparison of both has come to, and what stands here alone.
//!
//! What may be dropped of it is said by `consent`, and what is done then by `truncation`.
//!
//! Invariants:
//! * whatever the source is not known to have counts as this log's alone;
//! * a log that goes on is a beginning of the source's up to its end.

use std::fmt;

use tarn_record::Offset;

use crate::alignment::{Content, GoOn, SourceLog, go_on};
use crate::common_point::CommonPoint;
use crate::local_cluster::{LogEnds, Suffix};
use crate::reasons::Reason;

/// What to do with a partition, once both histories were compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// Fetch from here.
    GoOn(GoOn),
    /// The source has lost what is here: nothing may be appended.
    Diverged(Divergence),
    /// There are records here that no mirror has brought: nothing may be appended.
    LocalRecords(Divergence),
}

/// How a log is no beginning of the source's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
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
    let divergence = Divergence {
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
        Content::Mirrored => Alignment::Diverged(divergence),
        Content::Local => Alignment::LocalRecords(divergence),
    }
}

impl Alignment {
    /// How the log is no beginning of the source's, and as what that is told; `None` where it goes on.
    pub fn divergence(&self) -> Option<(Reason, &Divergence)> {
        match self {
            Alignment::GoOn(_) => None,
            Alignment::Diverged(divergence) => Some((Reason::SourceTruncated, divergence)),
            Alignment::LocalRecords(divergence) => Some((Reason::LocalRecords, divergence)),
        }
    }
}

impl Divergence {
    /// True where nothing but what ended the log for its mirror stands here alone. A marker that the source had and has
    /// not any more is none of that, nor is what a cleaner has left of somebody's records.
    pub fn holds_nothing(&self, reason: Reason) -> bool {
        let is_of_the_end = reason == Reason::LocalRecords && self.from >= self.mirrored_end;
        self.from >= self.log_end || (is_of_the_end && self.is_control_alone())
    }

    /// True where there are control records behind what is common, and never was anything else.
    pub fn is_control_alone(&self) -> bool {
        let offsets = self.log_end.0.saturating_sub(self.from.0);
        self.suffix.holds_no_records() && u64::try_from(offsets) == Ok(self.suffix.control_records)
    }

    /// True where there may be more than so many records behind what is common.
    pub fn has_more_than(&self, records_max: u64) -> bool {
        self.suffix.has_more || self.suffix.records > records_max
    }
}

/// The range, and what told so. It is kept with the state FAILED, and RecoverMirrorTopics reads the range from it again:
/// another wording there is one that an older directory does not have.
impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Divergence { why, from, log_end, suffix, .. } = self;
        let last = log_end.plus(-1);
        write!(f, "{why}: offsets {from} to {last} ({suffix}) are here and not at the source")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tarn_record::Epoch;

    #[test]
    fn a_log_whose_end_the_source_has_goes_on_there() {
        let common = Some(CommonPoint { epoch: Epoch(4), offset: Offset(150) });
        for content in [Content::Mirrored, Content::Local] {
            let found = judge(&ours(), content, &source(), common, rest(0, false));
            let Alignment::GoOn(GoOn { from, last_epoch, gap, .. }) = found else { panic!("{found:?}") };
            assert_eq!((from, last_epoch, gap), (Offset(150), Epoch(4), None));
        }
    }

    #[test]
    fn whose_records_they_may_be_says_as_what_a_divergence_is_told() {
        let told = |content| {
            let alignment = found(content, Some(100), 20, false);
            let (reason, divergence) = alignment.divergence().expect("it goes on nowhere");
            (reason, divergence.to_string())
        };
        let said = "the source is another: offsets 100 to 149 (20 records) are here and not at the source";
        assert_eq!(told(Content::Mirrored), (Reason::SourceTruncated, said.to_owned()));
        assert_eq!(told(Content::Local), (Reason::LocalRecords, said.to_owned()));
    }

    /// A log that has this in common with the source, and so many records of its own behind it; or control records
    /// alone.
    pub(crate) fn found(
        content: Content,
        common: Option<i64>,
        records: u64,
        compacted_there: bool,
    ) -> Alignment {
        let common = common.map(|offset| CommonPoint { epoch: Epoch(4), offset: Offset(offset) });
        judge(&ours(), content, &source(), common, rest(records, compacted_there))
    }

    pub(crate) fn rest(records: u64, compacted_there: bool) -> Rest {
        let control_records = if records == 0 { 50 } else { 2 };
        let suffix = Suffix { records, control_records, has_more: false };
        let (why, mirrored_end) = ("the source is another".to_owned(), Offset(100));
        Rest { why, suffix, mirrored_end, compacted_there }
    }

    pub(crate) fn ours() -> LogEnds {
        LogEnds {
            log_start: Offset(40),
            log_end: Offset(150),
            high_watermark: Offset(150),
            latest_epoch: Epoch(6),
            leader_epoch: Epoch(9),
            compacted: false,
        }
    }

    pub(crate) fn source() -> SourceLog {
        SourceLog { log_start: Offset(7), high_watermark: Offset(300), epoch_end: None }
    }
}
