//! A directory that this node had and that is in `log.dirs` no more is out of service, as one that cannot be opened is:
//! nothing of what was in it is made anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_image::MetadataImage;
use tarn_log::LogDir;
use tarn_log::known_dirs::KnownDirs;
use tarn_log::meta_properties::DirectoryId;
use tarn_record::BrokerId;
use tracing::{error, info, warn};

use super::directories::note_missing;
use crate::log_dirs::LogDirs;

/// Compares the directories with those that the node had, and keeps in mind which there are. One that is gone without a
/// partition that is missed needs nobody's decision, and is forgotten.
pub(super) fn look_for_gone(
    log_dirs: LogDirs,
    metadata: &Path,
    image: &MetadataImage,
    broker: BrokerId,
) -> LogDirs {
    let Some(keeper) = log_dirs.dirs().iter().find(|dir| dir.path() == metadata).cloned() else {
        return log_dirs;
    };
    let said = read(&keeper);
    let known = said.clone().unwrap_or_default();
    let compared = Compared::of(known, &present(&log_dirs), log_dirs.missing());
    for (id, from, to) in &compared.moved {
        info!(%id, from = %from.display(), to = %to.display(), "a log directory has moved");
    }
    let is_complete = compared.gone.is_empty() && log_dirs.missing().is_empty();
    let missed = if is_complete { 0 } else { note_missing(&log_dirs, image, broker) };
    let mut keep = compared.there;
    let mut log_dirs = log_dirs;
    if missed == 0 {
        compared.gone.iter().for_each(|(id, path)| {
            warn!(%id, path = %path.display(), "a log directory is gone and no partition is missed: it is forgotten");
        });
    } else {
        compared.gone.iter().for_each(|(id, path)| {
            error!(
                %id, path = %path.display(),
                "no directory of log.dirs has this id, which this node had at this path: its partitions are out of service. \
                 Put the directory back into log.dirs and start again; if it is gone for good, stop the node and let them be \
                 made anew, empty, once no other directory is away, with `tarn format --config server.properties --forget-directory={id}`"
            );
        });
        log_dirs = log_dirs.without(compared.gone.values().cloned());
        keep.0.extend(compared.gone);
    }
    if said.as_ref() != Some(&keep)
        && let Err(error) = keeper.write_known_dirs(&keep)
    {
        warn!(%error, "the log directories are not kept in mind: one that is taken away will not be missed");
    }
    log_dirs
}

/// What the file says; `None` where it says nothing.
fn read(keeper: &LogDir) -> Option<KnownDirs> {
    let known = keeper.known_dirs();
    match &known {
        Ok(Some(_)) => {}
        Ok(None) => info!(
            file = KnownDirs::FILE_NAME,
            "nothing says which log directories the node had: none will be missed"
        ),
        Err(error) => {
            warn!(%error, "nothing in it is believed: a log directory that was taken away is not missed");
        }
    }
    known.ok().flatten()
}

/// The directories that were opened; one from before Kafka 3.7 has no id.
fn present(log_dirs: &LogDirs) -> BTreeMap<DirectoryId, PathBuf> {
    let id = |dir: &Arc<LogDir>| Some((dir.properties()?.directory_id?, dir.path().to_owned()));
    log_dirs.dirs().iter().filter_map(id).collect()
}

/// The directories that the node has, and those that it had.
#[derive(Debug, PartialEq, Eq)]
struct Compared {
    /// Those in `log.dirs`, of which some may be unreadable.
    there: KnownDirs,
    /// Those that were at another path.
    moved: Vec<(DirectoryId, PathBuf, PathBuf)>,
    /// Those that are nowhere.
    gone: BTreeMap<DirectoryId, PathBuf>,
}

impl Compared {
    /// Of what is known; whose id cannot be read now is told by its path.
    fn of(known: KnownDirs, present: &BTreeMap<DirectoryId, PathBuf>, unreadable: &[PathBuf]) -> Compared {
        let mut compared =
            Compared { there: KnownDirs(present.clone()), moved: Vec::new(), gone: BTreeMap::new() };
        for (id, path) in known.0 {
            match present.get(&id) {
                Some(now) if *now == path => {}
                Some(now) => compared.moved.push((id, path, now.clone())),
                None if unreadable.contains(&path) => {
                    compared.there.0.insert(id, path);
                }
                None => {
                    compared.gone.insert(id, path);
                }
            }
        }
        compared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_told_by_its_id_and_one_that_cannot_be_read_by_its_path() {
        let ids: [DirectoryId; 5] = std::array::from_fn(|_| DirectoryId::random());
        let [same, moved, gone, unreadable, new] = ids;
        let dirs = |all: &[(DirectoryId, &str)]| -> BTreeMap<_, _> {
            all.iter().map(|(id, path)| (*id, PathBuf::from(path))).collect()
        };
        let known = dirs(&[(same, "/same"), (moved, "/old"), (gone, "/new"), (unreadable, "/bad")]);
        let present = dirs(&[(same, "/same"), (moved, "/moved"), (new, "/new")]);
        let compared = Compared::of(KnownDirs(known), &present, &["/bad".into()]);
        let mut there = present;
        there.insert(unreadable, "/bad".into());
        assert_eq!(compared.there, KnownDirs(there));
        assert_eq!(compared.moved, [(moved, "/old".into(), "/moved".into())]);
        assert_eq!(compared.gone, dirs(&[(gone, "/new")]), "another disk is at its path");
    }
}
