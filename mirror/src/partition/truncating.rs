//! What becomes of a log that is no beginning of the source's: it fails with the range, or its end is cut and it is
//! compared again.
//!
//! Invariants:
//! * a log is cut only behind a closed gate, and compared again before anything else, once the cut is on the disk;
//! * a log that was cut, or may have been, gets a newer leader epoch before anything is appended to it;
//! * the operator's consent ends with the cut, and with the alignment of its version even where that cut nothing, in
//!   this life or another. Where the process dies in between, it has ended if an export is noted that a cut came after,
//!   even one that did not come to its end; else the alignment is begun again with it;
//! * a log that parts again and again is left to an operator;
//! * what was exported is shown and written down with MIRRORING, and named by the report, whatever comes after it, be
//!   it another verb or the end of the process.

use std::sync::Arc;

use tarn_image::mirrors::Truncation;
use tarn_record::Epoch;

use super::{Aligned, Partition, Persisted, Want};
use crate::alignment::{Content, GoOn};
use crate::consent::Allowed;
use crate::divergence::Alignment;
use crate::limits;
use crate::local_cluster::{Export, LogTruncated, NotedExport};
use crate::reasons::Reason;
use crate::state::MirrorState;
use crate::truncation::{Ground, TruncationPlan, said_of_found};

/// What is known of how the log here and the source's compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Histories {
    /// They are to be compared.
    Open,
    /// The log here may be no beginning of the source's, and why: where they part is to be searched for.
    Apart(Arc<str>),
    /// The log here is a beginning of the source's.
    Same(Aligned),
    /// It is none, and may be cut.
    Diverged(TruncationPlan),
}

/// What was cut under this version of the binding.
#[derive(Debug, Default)]
pub(super) struct Truncations {
    /// Since it last was a beginning of the source's.
    in_a_row: u8,
    /// The last cut is not on the disk yet, whatever the binding has become since.
    is_unflushed: bool,
    /// The operator's consent was used, or has ended with the alignment.
    consent_is_used: bool,
    /// What was exported last.
    notice: Option<(Reason, Arc<str>)>,
    /// The same, until a report names it: under whichever version of the binding.
    unreported: Option<Export>,
}

impl Truncations {
    /// What is to be said of the last cut.
    pub(super) fn notice(&self) -> Option<&(Reason, Arc<str>)> {
        self.notice.as_ref()
    }

    /// The binding has another version.
    pub(super) fn rebound(&mut self) {
        let (unreported, is_unflushed) = (self.unreported.take(), self.is_unflushed);
        *self = Truncations { unreported, is_unflushed, ..Truncations::default() };
    }

    /// A state was written, and with it what was not reported.
    pub(super) fn reported(&mut self) {
        self.unreported = None;
    }

    /// What another life has written down of its cuts.
    pub(super) fn read(&mut self, persisted: &Persisted) {
        if persisted.state == Some(MirrorState::Mirroring) && self.notice.is_none() {
            self.notice = persisted.reason.zip(persisted.message.clone());
        }
    }
}

impl Partition {
    /// Histories were compared. Beside what the operator allows, the configuration gives up so many records of a
    /// divergence.
    pub fn compared(&mut self, alignment: &Alignment, divergence_records_max: Option<u64>) {
        let allowed = Allowed { consent: self.has_consent(), divergence_records_max };
        match alignment.truncation(allowed) {
            None => {}
            Some(Ok(plan)) if self.truncations.in_a_row < limits::TRUNCATIONS_IN_A_ROW_MAX => {
                self.histories = Histories::Diverged(plan);
                return self.went_well();
            }
            Some(Ok(plan)) => {
                let why = format!(
                    "it was cut {} times and is still no beginning of the source's",
                    self.truncations.in_a_row
                );
                return self.fails_for_good(plan.reason, why.into());
            }
            Some(Err((reason, why))) => return self.fails_for_good(reason, why.into()),
        }
        if let Alignment::GoOn(GoOn { from, last_epoch, compacted, .. }) = *alignment {
            self.histories = Histories::Same(Aligned { from, last_epoch, compacted });
            self.truncations.in_a_row = 0;
            self.truncations.consent_is_used = true;
            self.went_well();
        }
    }

    /// Histories were compared, and may have diverged: where is to be searched for.
    pub fn apart(&mut self, why: Arc<str>) {
        self.histories = Histories::Apart(why);
        self.went_well();
    }

    /// That where histories part is searched for, and why.
    pub(super) fn search_notice(&self) -> Option<(Reason, Arc<str>)> {
        let Histories::Apart(why) = &self.histories else { return None };
        let said = format!("{why}; where both part is being searched for");
        Some((Reason::ComparingHistories, said.into()))
    }

    /// The log was cut as it was decided under this version of the binding: it is compared again.
    pub fn truncated(&mut self, plan: &TruncationPlan, done: &LogTruncated, version: i64) {
        self.histories = Histories::Open;
        if let Some(export) = &done.export {
            self.truncations.notice = Some((plan.reason, plan.said(export).into()));
            self.truncations.unreported = Some(export.clone());
        }
        if version == self.bound.version {
            self.truncations.in_a_row = self.truncations.in_a_row.saturating_add(1);
            self.truncations.consent_is_used |= plan.ground == Ground::Consent;
        }
        self.is_read_anew();
        self.truncations.is_unflushed = done.unflushed.is_some();
        if !self.truncations.is_unflushed {
            // The disk has taken all that there was to keep; perhaps there is nothing to append that would show it.
            self.storage_is_back();
        }
        self.went_well();
    }

    /// The log is on the disk as it is, and so is what was cut off it.
    pub(super) fn truncation_is_flushed(&mut self) {
        if std::mem::take(&mut self.truncations.is_unflushed) {
            self.storage_is_back();
        }
    }

    /// True where a cut is not on the disk yet.
    pub(super) fn must_flush_truncation(&self) -> bool {
        self.truncations.is_unflushed
    }

    /// What is to be written down, with MIRRORING, of what was exported last.
    pub fn truncation_notice(&self) -> Option<(Reason, Arc<str>)> {
        self.truncations.notice.clone()
    }

    /// What was exported last, where no report names it yet.
    pub fn unreported(&self) -> Option<&Export> {
        self.truncations.unreported.as_ref()
    }

    /// Where the step that is given up is a truncation, nobody will say whether it was made. What was exported is looked
    /// up once the gate is closed, and whoever reads the log is made to look whether it still is the one they read.
    pub(super) fn may_be_truncated(&mut self) {
        if let Some(Want::Truncate(_)) = self.busy {
            self.state_unknown();
            self.is_read_anew();
        }
    }

    /// What was exported before the log was truncated, as it is noted beside it. It is news where nothing was written
    /// since that names it: whoever ordered it has died, or has not waited.
    pub fn export_found(&mut self, noted: &NotedExport) {
        let NotedExport { version, export } = noted;
        let Some(persisted) = &self.persisted else { return };
        let is_named = persisted.message.as_ref().is_some_and(|said| said.contains(&*export.path));
        if persisted.state.is_none() || *version < persisted.version || is_named {
            return;
        }
        let reason = match self.content() {
            Content::Mirrored => Reason::SourceTruncated,
            Content::Local => Reason::LocalRecords,
        };
        self.truncations.notice = Some((reason, said_of_found(export).into()));
        self.truncations.unreported = Some(export.clone());
        self.truncations.consent_is_used |= *version == self.bound.version;
        self.is_read_anew();
    }

    /// Consumers look whether the log still is the one they read where they see a newer epoch (KIP-320).
    fn is_read_anew(&mut self) {
        self.fell_behind(Epoch(self.bound.leader_epoch.0.saturating_add(1)));
    }

    /// The owning core does not cut the log as it is: it is compared again.
    pub fn truncation_refused(&mut self) {
        self.histories = Histories::Open;
        self.gate = super::GateNow::MustClose;
    }

    /// True where the end of the log is about to be dropped.
    pub(super) fn is_to_be_truncated(&self) -> bool {
        matches!(self.histories, Histories::Diverged(_))
    }

    /// True where MIRRORING is to be written: once, and again where it does not say what was exported, or not that the
    /// operator's consent has ended.
    pub(super) fn must_write_mirroring(&self, persisted: &Persisted) -> bool {
        let is_said = self.truncations.notice.as_ref().map(|(_, said)| said) == persisted.message.as_ref();
        let ends_consent = self.bound.truncation == Truncation::Allowed && self.is_older(persisted);
        persisted.state != Some(MirrorState::Mirroring) || !is_said || ends_consent
    }

    /// True where the operator has consented to this version of the binding's dropping something, and it has neither
    /// dropped it nor ended its alignment.
    fn has_consent(&self) -> bool {
        let is_aligned = |persisted: &Persisted| {
            !self.is_older(persisted) && persisted.state.is_some_and(MirrorState::means_mirrored)
        };
        self.bound.truncation == Truncation::Allowed
            && !self.truncations.consent_is_used
            && !self.persisted.as_ref().is_some_and(is_aligned)
    }
}

#[cfg(test)]
mod tests;
