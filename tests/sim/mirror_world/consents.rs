//! What an operator has allowed, and what was dropped by it, written from the rule and not from the code: a consent
//! belongs to one version of the binding, and ends with the cut that used it, or with the alignment of that version.
//!
//! A node that stops between a cut and MIRRORING has written down nowhere that the consent was used; its next life may
//! use it once more, for that is one alignment.

use std::collections::BTreeSet;

use tarn_mirror::truncation::Ground;

use crate::simulation::Violation;

#[derive(Debug, Default)]
pub(super) struct Consents {
    given: BTreeSet<i64>,
    /// Since the node began.
    used: BTreeSet<i64>,
    ended: BTreeSet<i64>,
    /// How many records of a divergence the configuration gives up.
    pub(super) records_max: Option<u64>,
}

/// By what a cut says that it is allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) version: i64,
    pub(super) ground: Ground,
}

/// What a cut has dropped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dropped {
    /// Of the source's.
    pub(super) mirrored_records: u64,
    /// Of clients here.
    pub(super) local_records: u64,
}

impl Consents {
    /// Where the configuration gives up so many records of a divergence.
    pub(super) fn new(records_max: Option<u64>) -> Consents {
        Consents { records_max, ..Consents::default() }
    }

    pub(super) fn given(&mut self, version: i64) {
        self.given.insert(version);
    }

    /// The coordinator will not forget that the partition is mirrored by this version.
    pub(super) fn aligned(&mut self, version: i64) {
        self.ended.insert(version);
    }

    pub(super) fn crashed(&mut self) {
        self.used.clear();
    }

    /// Something was dropped.
    pub(super) fn check(&mut self, asked: &Asked, dropped: Dropped) -> Result<(), Violation> {
        let Dropped { mirrored_records, local_records } = dropped;
        let Asked { version, ground } = *asked;
        let wrong = |why: &str| {
            Err(Violation::new("consent", format!("{dropped:?} by {ground:?} of version {version}: {why}")))
        };
        match ground {
            Ground::NoRecords if mirrored_records + local_records > 0 => wrong("records were dropped"),
            Ground::Configured if local_records > 0 => wrong("clients here wrote some of them"),
            Ground::Configured if self.records_max.is_none_or(|max| mirrored_records > max) => {
                wrong("the configuration does not allow it")
            }
            Ground::Consent if !self.given.contains(&version) => wrong("nobody has allowed it"),
            Ground::Consent if self.ended.contains(&version) => wrong("its alignment has ended"),
            Ground::Consent if !self.used.insert(version) => wrong("it was used before"),
            Ground::NoRecords | Ground::Configured | Ground::Consent => Ok(()),
        }
    }
}
