//! What the metadata log is known to have held, and does not hold any more.
//!
//! Opening a log ends it where it stops being right, and one that ends early looks like a short one. A node
//! would go on with metadata that is old, and put aside the partitions that it does not know. So whatever is
//! known of the log is compared with what is there, before anything is cut or written.
//!
//! What is known:
//! * all below the newest snapshot was on the disk, as a snapshot holds committed records only;
//! * after a stop in order all of the log was, and the mark of that stop says where it ended. Kafka's mark
//!   does not, nor does any after a crash: then a log that ends early cannot be told from one that was short.

use std::path::PathBuf;
use std::sync::Arc;

use tarn_log::checkpoints::CleanShutdown;
use tarn_log::{Damage, Fault, Log, LogDir};
use tarn_record::{Offset, PartitionIndex};

use super::{MetadataLogError, TOPIC};

/// See the module.
pub(super) struct Known<'a> {
    log_dir: &'a Arc<LogDir>,
    snapshot_end: Offset,
}

impl<'a> Known<'a> {
    /// What is known of the log in a directory whose newest snapshot ends at `snapshot_end`.
    pub(super) fn of(log_dir: &'a Arc<LogDir>, snapshot_end: Offset) -> Known<'a> {
        Known { log_dir, snapshot_end }
    }

    /// Opening the log would end it at its first damage. What is above the newest snapshot may be the end of an
    /// append that a crash cut short: but nothing follows such an end.
    pub(super) fn refuse_to_cut(&self) -> Result<(), MetadataLogError> {
        let found = Log::first_damage(self.log_dir, TOPIC, PartitionIndex(0), self.snapshot_end)?;
        let Some(damage) = found else { return Ok(()) };
        if !self.log_dir.was_clean() && damage.offset >= self.snapshot_end && !damage.is_followed {
            return Ok(());
        }
        match damage.fault {
            Fault::MissingUpTo(start) => Err(MetadataLogError::Gap { from: damage.offset, start }),
            Fault::Batch(_) => {
                let remedy = self.remedy(&damage);
                Err(MetadataLogError::Damaged { damage, remedy })
            }
        }
    }

    /// Refuses a log that ends at `end` where the last stop left it with more.
    pub(super) fn refuse_shortened(&self, end: Offset) -> Result<(), MetadataLogError> {
        let end = end.max(self.snapshot_end);
        match self.marked_end() {
            Some(marked) if end < marked => {
                let dir = self.log_dir.path().join(format!("{TOPIC}-0"));
                Err(MetadataLogError::Shortened { dir, end, marked, mark: self.mark() })
            }
            _ => Ok(()),
        }
    }

    /// How to go on without what is damaged, and what that costs.
    fn remedy(&self, damage: &Damage) -> String {
        let snapshot_end = self.snapshot_end;
        if damage.next_segment.is_some_and(|next| next <= snapshot_end) {
            return format!(
                "move this one file out of that directory: the newest snapshot, which ends at offset {snapshot_end}, \
                 holds all that is in it"
            );
        }
        // The log is shorter then, and that is what is wanted.
        let and_the_mark = match self.marked_end() {
            Some(marked) if damage.offset.max(snapshot_end) < marked => {
                format!(", and remove {}", self.mark().display())
            }
            _ => String::new(),
        };
        if damage.offset < snapshot_end {
            return format!(
                "to go on with the newest snapshot, which ends at offset {snapshot_end}, and without anything after \
                 it, move the .log files out of that directory{and_the_mark}"
            );
        }
        format!(
            "to go on without the metadata from offset {} on, cut the file to {} bytes and move the .log files with \
             higher numbers out of that directory{and_the_mark}",
            damage.offset, damage.position
        )
    }

    /// Where the log ended when the node was last stopped in order.
    fn marked_end(&self) -> Option<Offset> {
        self.log_dir.clean_shutdown()?.metadata_end
    }

    fn mark(&self) -> PathBuf {
        self.log_dir.path().join(CleanShutdown::FILE_NAME)
    }
}
