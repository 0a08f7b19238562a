//! A log directory's own files together, and the names in it.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tarn_log::checkpoints::{CleanShutdown, OffsetCheckpoint, PartitionMetadata};
use tarn_log::meta_properties::MetaProperties;
use tarn_log::{Descriptors, LogDir};
use tarn_record::{BrokerId, Offset, PartitionIndex};

use super::files::ID;
use crate::archive::{self, Files};
use crate::engine::{Says, Steps, Target};
use crate::paper_disk::PaperDisk;

pub(crate) fn all() -> Vec<Target> {
    let target = Target::new("directory", opened)
        .seeds([archive::pack(&whole())])
        .changed_by(archive::change)
        .words(&[b"-0", b"-delete", b"-stray", b".", b"-", b"2147483647", b"\n", b"version", b"="])
        // Every file is on the disk in memory; lines become strings in maps.
        .memory(100, 64 * 1024)
        .inputs(8000);
    vec![target]
}

fn opened(input: Bytes, _: &mut Steps) -> Says {
    let disk = PaperDisk::default();
    for (name, content) in archive::unpack(&input) {
        // A name that begins like this is that of a directory with one file.
        let name = match name.strip_prefix("dir ") {
            Some(name) => format!("{name}/{}", PartitionMetadata::FILE_NAME),
            None => name,
        };
        disk.put(&PathBuf::from("/data").join(name.trim_start_matches('/')), content);
    }
    let dir = match LogDir::open(Arc::new(disk), "/data", Descriptors::new(10)) {
        Ok(dir) => dir,
        Err(error) => return Says::shown(&error),
    };
    let mut says = Says::good(usize::from(dir.was_clean()));
    use OffsetCheckpoint::{Cleaner, LogStart, RecoveryPoint, Replication};
    for checkpoint in [Cleaner, LogStart, RecoveryPoint, Replication] {
        says = says.and(Says::result(&dir.offsets(checkpoint), |offsets| offsets.len()));
    }
    let found = dir.partitions();
    if let Some(first) = found.as_ref().ok().and_then(|found| found.first()) {
        black_box(dir.rename_as_stray(first).is_ok());
    }
    let deleted = dir.deleted().map_or(0, |deleted| deleted.len());
    says.and(Says::result(&found, Vec::len)).and(Says::good(deleted))
}

fn whole() -> Files {
    let properties =
        MetaProperties { cluster_id: "cluster".to_owned(), node_id: BrokerId(1), directory_id: None };
    let offsets = OffsetCheckpoint::write([("orders", PartitionIndex(0), Offset(17))]);
    let metadata = PartitionMetadata { topic_id: ID }.write();
    let clean = CleanShutdown { broker_epoch: 7, metadata_end: Some(Offset(9)) };
    let mut files: Files = vec![
        (MetaProperties::FILE_NAME.to_owned(), properties.write()),
        (CleanShutdown::FILE_NAME.to_owned(), clean.write()),
        ("dir orders-0".to_owned(), metadata.clone()),
        ("dir a-topic-12".to_owned(), metadata.clone()),
        ("dir orders-1.0123456789abcdef0123456789abcdef-delete".to_owned(), metadata),
    ];
    for name in ["cleaner", "log-start", "recovery-point", "replication"] {
        files.push((format!("{name}-offset-checkpoint"), offsets.clone()));
    }
    files
}
