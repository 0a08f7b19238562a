//! What was exported before logs were cut, and whether it is still there: also after any crash.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use tarn_log::disk::Disk as _;
use tarn_record::batches;

use crate::disk::SimDisk;
use crate::simulation::Violation;

/// Batches: where they begin, and their bytes.
pub(super) type Batches = Vec<(i64, Bytes)>;

#[derive(Debug, Default)]
pub(super) struct Exports {
    kept: Vec<(PathBuf, Batches)>,
    /// How many of them a crash has left whole: nothing touches them any more.
    proved: usize,
}

impl Exports {
    /// A log is cut of these batches, which are in this directory, if anywhere.
    pub(super) fn cut(
        &mut self,
        disk: &SimDisk,
        path: Option<&Path>,
        dropped: Batches,
    ) -> Result<(), Violation> {
        let Some((first, _)) = dropped.first() else { return Ok(()) };
        let Some(path) = path else {
            return Err(Violation::new(
                "export",
                format!("from {first} on records are dropped, not exported"),
            ));
        };
        check(disk, path, &dropped)?;
        self.kept.push((path.to_owned(), dropped));
        Ok(())
    }

    /// The machine has stopped and started again.
    pub(super) fn crashed(&mut self, disk: &SimDisk) -> Result<(), Violation> {
        self.kept[self.proved..].iter().try_for_each(|(path, dropped)| check(disk, path, dropped))?;
        self.proved = self.kept.len();
        Ok(())
    }

    pub(super) fn check_all(&self, disk: &SimDisk) -> Result<(), Violation> {
        self.kept.iter().try_for_each(|(path, dropped)| check(disk, path, dropped))
    }
}

/// Every batch is there, to the byte.
fn check(disk: &SimDisk, path: &Path, dropped: &Batches) -> Result<(), Violation> {
    if disk.power_lost() {
        return Ok(());
    }
    let wrong = |text: String| Violation::new("export", format!("{}: {text}", path.display()));
    let entries = disk.list(path).map_err(|error| wrong(error.to_string()))?;
    let mut exported = Vec::new();
    for entry in entries {
        let bytes = disk.read_all(&path.join(&entry.name)).map_err(|error| wrong(error.to_string()))?;
        for batch in batches(Bytes::from(bytes)) {
            let batch = batch.map_err(|error| wrong(error.to_string()))?;
            exported.push((batch.header().base_offset.0, batch.bytes().clone()));
        }
    }
    match dropped.iter().find(|batch| !exported.contains(batch)) {
        Some((base, _)) => Err(wrong(format!("the batch at {base} is not in it"))),
        None => Ok(()),
    }
}
