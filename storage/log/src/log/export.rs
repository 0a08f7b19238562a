//! Copying the end of a log into files of its own, before it is cut off.
//!
//! The copy is a directory of segments, each named by its first offset as those of a partition are, so that what
//! reads a partition's files reads these. The batches are as they stand in the log, and whole: a copy from within
//! a batch begins with that batch. It is written under another name and renamed when all of it is on the disk,
//! so that a directory with its final name is complete, whatever happened meanwhile.
//!
//! One that is there already, because the cut after it failed or the process died, is not made again where it is the
//! same to the byte: what is tried for ever must not fill the disk. That is read and not concluded from checksums; it
//! costs less than a copy, and what is dropped afterwards is known to be there.
//!
//! It takes a copy of what the log knows and runs on any thread, a piece at a time: never the whole is in memory,
//! nor more than one segment open. That one stays open until it is copied, so that a removal does not take it away.

use std::io::{self, IoSlice};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_record::{Offset, Timestamp};

use super::batches::RecordCounts;
use super::export_dir::{ExportDir, Room};
use super::export_note::BatchMark;
use super::{Log, LogBatches};
use crate::disk::{Disk, DiskFile, Open};
use crate::error::{LogError, sync_failed};
use crate::home::{Home, Kind};
use crate::limits::EXPORT_PIECE_BYTES;
use crate::segment::{Scan, SegmentView, Step, WIDE};

/// What a directory is called that is not complete.
const UNFINISHED_SUFFIX: &str = ".tmp";

/// A copy that is ready to be made.
#[derive(Debug)]
#[must_use = "nothing is copied until the job is run"]
pub struct ExportJob {
    home: Arc<Home>,
    batches: LogBatches,
}

/// A copy that was made, and is on the disk.
#[derive(Debug)]
pub struct Exported {
    home: Arc<Home>,
    /// The directory.
    pub path: PathBuf,
    /// The first offset in it.
    pub from: Offset,
    /// Where the log ended.
    pub to: Offset,
    /// The records in it.
    pub counts: RecordCounts,
    /// The bytes of its batches.
    pub bytes: u64,
    /// Its last batch.
    pub(super) last: BatchMark,
    /// It was found, left by an earlier attempt, and perhaps somebody knows of it.
    pub was_there: bool,
}

/// What is copied of one segment: from a batch to the end of its file.
#[derive(Debug)]
struct Part<'a> {
    view: &'a SegmentView,
    first: Offset,
    position: u64,
}

impl Log {
    /// Copies the log from the batch on that holds `from`, or follows it, up to the log end.
    pub fn export_job(&self, from: Offset) -> ExportJob {
        ExportJob { home: self.home.clone(), batches: self.batches(from.max(self.start), self.end) }
    }
}

impl ExportJob {
    /// Makes the copy `<dir>/<topic>-<partition>/<from>-<to>.<unix ms>`, creating what is missing of that path,
    /// and removes what an interrupted attempt of this partition left there; or takes over a copy of the same that
    /// is complete. `None` where no batch is to be copied. Waits for the disk; `is_wanted` is asked now and then. No
    /// other copy of the partition may be made to `dir` at the same time.
    ///
    /// # Errors
    /// Where there is no room, or the disk refused, or it is not wanted any more, or the log cannot be read: also
    /// when its offsets were removed meanwhile. There is no copy then.
    pub fn run(
        self,
        dir: &ExportDir,
        now: Timestamp,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Option<Exported>, LogError> {
        let ExportJob { home, batches } = self;
        let parts = parts(&batches)?;
        let (disk, to) = (home.disk.as_ref(), batches.upper);
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return Ok(None) };
        let Some(found) = last.view.locate_below(to, to)? else { return Ok(None) };
        let (from, last) = (first.first, BatchMark::of(&found.header));
        let bytes = parts.iter().map(Part::bytes).sum();
        let place = prepare(disk, dir.path(), &home)?;
        let offsets = format!("{from}-{to}");
        let exported = |path, counts, was_there| {
            Some(Exported { home: home.clone(), path, from, to, counts, bytes, last, was_there })
        };
        if let Some((path, counts)) = earlier(disk, &place, &offsets, &parts, &is_wanted)? {
            return Ok(exported(path, counts, true));
        }
        let available = || disk.available_bytes(&place);
        let available = || available().map_err(|cause| LogError::io("measure", &place, cause));
        let mut room = dir.room(&place, bytes, available)?;
        let path = unused(disk, &place, &offsets, now);
        let unfinished = with_suffix(&path, UNFINISHED_SUFFIX);
        let made = copy(disk, &parts, &unfinished, &mut room, &is_wanted).and_then(|counts| {
            disk.rename(&unfinished, &path).map_err(|cause| LogError::io("rename", &unfinished, cause))?;
            sync_dir(disk, &place)?;
            Ok(counts)
        });
        match made {
            Ok(counts) => Ok(exported(path, counts, false)),
            Err(error) => {
                // The first error says more than that it could not be cleared away either.
                let _ = remove(disk, &unfinished).and(remove(disk, &path));
                Err(error)
            }
        }
    }
}

impl Exported {
    /// Removes the copy, and what was noted of it: nothing was cut. One that was there before stays.
    ///
    /// # Errors
    /// Where the disk refused.
    pub fn discard(self) -> Result<(), LogError> {
        self.forget()?;
        if self.was_there { Ok(()) } else { remove(self.home.disk.as_ref(), &self.path) }
    }

    pub(super) fn home(&self) -> &Home {
        &self.home
    }
}

impl Part<'_> {
    /// What the file is called that it is copied to.
    fn name(&self) -> String {
        format!("{:020}{}", self.first.0, Kind::Log.suffix())
    }

    fn bytes(&self) -> u64 {
        u64::from(self.view.size).saturating_sub(self.position)
    }
}

/// What is to be copied.
fn parts(batches: &LogBatches) -> Result<Vec<Part<'_>>, LogError> {
    let mut parts = Vec::new();
    for view in &batches.segments {
        let Some(found) = view.locate(batches.from)? else { continue };
        parts.push(Part { view, first: found.header.base_offset, position: found.position });
    }
    Ok(parts)
}

/// The directory for copies of one partition.
fn prepare(disk: &dyn Disk, dir: &Path, home: &Home) -> Result<PathBuf, LogError> {
    let place = dir.join(home.path.file_name().unwrap_or_default());
    let missing: Vec<&Path> = place.ancestors().take_while(|path| !disk.exists(path)).collect();
    disk.create_dir_all(&place).map_err(|cause| LogError::io("create", &place, cause))?;
    for name in missing.into_iter().chain([place.as_path(), dir]) {
        sync_dir(disk, parent(name))?;
    }
    let entries = disk.list(&place).map_err(|cause| LogError::io("list", &place, cause))?;
    for left in entries.iter().filter(|entry| entry.is_dir && entry.name.ends_with(UNFINISHED_SUFFIX)) {
        remove(disk, &place.join(&left.name))?;
    }
    Ok(place)
}

/// A name that no copy has yet.
fn unused(disk: &dyn Disk, place: &Path, offsets: &str, now: Timestamp) -> PathBuf {
    let named = |ms: i64| place.join(format!("{offsets}.{ms}"));
    let mut ms = now.0;
    while disk.exists(&named(ms)) {
        ms = ms.saturating_add(1);
    }
    named(ms)
}

/// A complete copy of the same, and how many records it holds.
fn earlier(
    disk: &dyn Disk,
    place: &Path,
    offsets: &str,
    parts: &[Part<'_>],
    is_wanted: &dyn Fn() -> bool,
) -> Result<Option<(PathBuf, RecordCounts)>, LogError> {
    let entries = disk.list(place).map_err(|cause| LogError::io("list", place, cause))?;
    for entry in entries.iter().filter(|entry| entry.is_dir && is_named(&entry.name, offsets)) {
        let path = place.join(&entry.name);
        if !is_of_size(disk, &path, parts) {
            continue;
        }
        let mut counts = RecordCounts::default();
        let mut is_same = true;
        for part in parts {
            let file = part.view.open()?;
            count(part, file.as_ref(), &mut counts)?;
            is_same = is_same && is_same_part(disk, part, file.as_ref(), &path.join(part.name()), is_wanted)?;
        }
        if is_same {
            // Its name may be younger than the last sync of the directory.
            sync_dir(disk, place)?;
            return Ok(Some((path, counts)));
        }
    }
    Ok(None)
}

/// True where a copy with this name, if it is complete, is one of these offsets.
fn is_named(name: &str, offsets: &str) -> bool {
    let made_at = name.strip_prefix(offsets).and_then(|rest| rest.strip_prefix('.'));
    made_at.is_some_and(|ms| !ms.is_empty() && ms.bytes().all(|byte| byte.is_ascii_digit()))
}

/// True where a directory has the files of a copy, and nothing else.
fn is_of_size(disk: &dyn Disk, path: &Path, parts: &[Part<'_>]) -> bool {
    let Ok(entries) = disk.list(path) else { return false };
    let found = entries.iter().map(|entry| (entry.name.clone(), entry.len));
    found.eq(parts.iter().map(|part| (part.name(), part.bytes())))
}

/// Compares a segment with its copy. A copy that cannot be read is none.
fn is_same_part(
    disk: &dyn Disk,
    part: &Part<'_>,
    file: &dyn DiskFile,
    path: &Path,
    is_wanted: &dyn Fn() -> bool,
) -> Result<bool, LogError> {
    let Ok(copy) = disk.open(path, Open::Read) else { return Ok(false) };
    let mut copied = Vec::new();
    let mut is_same = true;
    in_pieces(part, file, path, is_wanted, |piece, done| {
        copied.resize(piece.len(), 0);
        is_same = copy.read_at(&mut copied, done).is_ok_and(|read| read == piece.len()) && copied == piece;
        Ok(if is_same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(is_same)
}

/// Copies the parts into a new directory and has them on the disk; how many records they hold.
fn copy(
    disk: &dyn Disk,
    parts: &[Part<'_>],
    into: &Path,
    room: &mut Room<'_>,
    is_wanted: &dyn Fn() -> bool,
) -> Result<RecordCounts, LogError> {
    disk.create_dir_all(into).map_err(|cause| LogError::io("create", into, cause))?;
    let mut counts = RecordCounts::default();
    for part in parts {
        let file = part.view.open()?;
        count(part, file.as_ref(), &mut counts)?;
        copy_part(disk, part, file.as_ref(), &into.join(part.name()), room, is_wanted)?;
    }
    sync_dir(disk, into)?;
    Ok(counts)
}

/// Goes through the headers, which also says that what is copied are whole batches.
fn count(part: &Part<'_>, file: &dyn DiskFile, counts: &mut RecordCounts) -> Result<(), LogError> {
    let mut scan = Scan::new(file, part.view.base(), part.position, u64::from(part.view.size), WIDE);
    loop {
        match scan.step().map_err(|cause| part.view.failed("read", cause))? {
            Step::Batch(found) => counts.add(&found.header),
            Step::Bad(fault) => return Err(part.view.damaged(scan.position(), fault)),
            Step::End => return Ok(()),
        }
    }
}

fn copy_part(
    disk: &dyn Disk,
    part: &Part<'_>,
    file: &dyn DiskFile,
    path: &Path,
    room: &mut Room<'_>,
    is_wanted: &dyn Fn() -> bool,
) -> Result<(), LogError> {
    let written = |cause| LogError::io("write", path, cause);
    let copy = disk.open(path, Open::Create).map_err(written)?;
    in_pieces(part, file, path, is_wanted, |piece, done| {
        copy.write_at(&[IoSlice::new(piece)], done).map_err(written)?;
        room.was_filled(piece.len() as u64);
        Ok(ControlFlow::Continue(()))
    })?;
    copy.write_out(0).and_then(|()| copy.sync_data()).map_err(|cause| LogError::unsynced(path, cause))
}

/// Reads what is copied of a segment and hands it on, each piece with its position in the copy, until `take` breaks.
fn in_pieces(
    part: &Part<'_>,
    file: &dyn DiskFile,
    path: &Path,
    is_wanted: &dyn Fn() -> bool,
    mut take: impl FnMut(&[u8], u64) -> Result<ControlFlow<()>, LogError>,
) -> Result<(), LogError> {
    let bytes = part.bytes();
    let mut piece = vec![0; EXPORT_PIECE_BYTES.min(usize::try_from(bytes).unwrap_or(usize::MAX))];
    let mut done = 0;
    while done < bytes {
        if !is_wanted() {
            return Err(LogError::GivenUp { path: path.to_owned() });
        }
        let left = usize::try_from(bytes - done).unwrap_or(usize::MAX);
        let wanted = piece.len().min(left);
        let piece = &mut piece[..wanted];
        let read = file.read_at(piece, part.position + done);
        if read.map_err(|cause| part.view.failed("read", cause))? < wanted {
            return Err(part.view.failed("read", io::ErrorKind::UnexpectedEof.into()));
        }
        if take(piece, done)?.is_break() {
            return Ok(());
        }
        done += wanted as u64;
    }
    Ok(())
}

fn sync_dir(disk: &dyn Disk, path: &Path) -> Result<(), LogError> {
    disk.sync_dir(path).map_err(|cause| LogError::io("sync", path, sync_failed(cause)))
}

/// Removes a directory; one that is not there is fine.
fn remove(disk: &dyn Disk, path: &Path) -> Result<(), LogError> {
    match disk.remove_dir_all(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(LogError::io("remove", path, cause)),
        _ => Ok(()),
    }
}

/// The directory that a name is in.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
