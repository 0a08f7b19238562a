//! Swaps of compaction that a crash interrupted, Tarn's own or Kafka's: undone or completed, before a log is opened.
//!
//! A file that ends in `.cleaned` was being written: it goes, and with it every `.swap` from its base on, of which not
//! all were renamed. What is left of these is complete and on the disk. Of the segments that it replaces some may be
//! there and some not, so the rest of them goes, with their snapshots, and it gets its name.
//!
//! Each step leaves what the next opening comes to the same end with.

use std::sync::Arc;

use tarn_record::Offset;

use crate::disk::Open;
use crate::error::LogError;
use crate::home::{CLEANED_SUFFIX, Home, Kind, SWAP_SUFFIX};
use crate::segment::{Scan, Step, WIDE};

/// Undoes or completes them; returns how many segments got their places.
///
/// # Errors
/// `Damaged` where a segment that should replace others is not right; or the system's refusal.
pub(super) fn complete(home: &Arc<Home>) -> Result<usize, LogError> {
    let names = names(home)?;
    let ending_with = |suffix: &'static str| -> Vec<(Kind, Offset)> {
        names.iter().filter_map(|name| Kind::parse(name.strip_suffix(suffix)?)).collect()
    };
    let (cleaned, swaps) = (ending_with(CLEANED_SUFFIX), ending_with(SWAP_SUFFIX));
    if cleaned.is_empty() && swaps.is_empty() {
        return Ok(0);
    }
    let unfinished = cleaned.iter().map(|&(_, base)| base).min();
    let (undone, complete): (Vec<_>, Vec<_>) =
        swaps.into_iter().partition(|(_, base)| unfinished.is_some_and(|unfinished| *base >= unfinished));
    undone.iter().try_for_each(|&(kind, base)| home.remove(&home.swap(base, kind)))?;
    cleaned.iter().try_for_each(|&(kind, base)| home.remove(&home.cleaned(base, kind)))?;

    let segments = || complete.iter().filter(|(kind, _)| *kind == Kind::Log).map(|&(_, base)| base);
    let mut end = Offset(0);
    for base in segments() {
        end = end.max(end_of(home, base)?);
    }
    if let Some(first) = segments().min() {
        let replaced = names.iter().filter_map(|name| Kind::parse(name));
        for (kind, base) in replaced.filter(|(_, base)| (first..end).contains(base)) {
            home.remove(&home.file(base, kind))?;
        }
    }
    // The `.log` of a segment first: before, what was removed may have to be removed again.
    for is_log in [true, false] {
        for &(kind, base) in complete.iter().filter(|(kind, _)| (*kind == Kind::Log) == is_log) {
            home.rename(&home.swap(base, kind), &home.file(base, kind))?;
        }
    }
    home.sync()?;
    Ok(segments().count())
}

fn names(home: &Home) -> Result<Vec<String>, LogError> {
    let entries = home.disk.list(&home.path).map_err(|cause| LogError::io("list", &home.path, cause))?;
    Ok(entries.into_iter().filter(|entry| !entry.is_dir).map(|entry| entry.name).collect())
}

/// The offset after the last batch of a segment that is complete; its base where it has none.
fn end_of(home: &Arc<Home>, base: Offset) -> Result<Offset, LogError> {
    let path = home.swap(base, Kind::Log);
    let failed = |cause| LogError::io("read", &path, cause);
    let file = home.disk.open(&path, Open::Read).map_err(failed)?;
    let len = file.len().map_err(failed)?;
    let mut scan = Scan::new(file.as_ref(), base, 0, len, WIDE);
    let mut end = base;
    loop {
        match scan.step().map_err(failed)? {
            Step::Batch(found) => end = found.header.next_offset(),
            Step::Bad(fault) => {
                return Err(LogError::Damaged { path, position: scan.position(), fault });
            }
            Step::End => return Ok(end),
        }
    }
}
