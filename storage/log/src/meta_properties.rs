//! The file `meta.properties`: to which cluster and node a log directory belongs.
//!
//! Written once by `format`, read at every start: a directory that belongs to another cluster or node
//! must not be served.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use java_properties::{LineEnding, PropertiesWriter};
use tarn_record::{BrokerId, NotAnId, TopicId};
use uuid::Uuid;

use crate::checkpoints::CheckpointError;

/// What `meta.properties` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    /// `cluster.id`.
    pub cluster_id: String,
    /// `node.id`, or `broker.id` in a file of version 0.
    pub node_id: BrokerId,
    /// `directory.id`, which names the directory among all in the cluster; files from before Kafka 3.7
    /// have none.
    pub directory_id: Option<DirectoryId>,
}

/// The id of a log directory (KIP-858), written like a topic id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectoryId(pub Uuid);

impl MetaProperties {
    /// The name of the file in the log directory.
    pub const FILE_NAME: &'static str = "meta.properties";

    /// Reads the file, version 0 or 1.
    ///
    /// # Errors
    /// Where it is not a properties file, or a key is missing or has a value that it cannot have.
    pub fn read(bytes: &[u8]) -> Result<MetaProperties, CheckpointError> {
        let malformed = |line| CheckpointError::Malformed { line, expected: "a line of a properties file" };
        // The reader of properties panics on a part of a byte order mark that is all there is.
        let text = std::str::from_utf8(bytes).map_err(|_| malformed(1))?;
        let properties = java_properties::read(text.as_bytes())
            .map_err(|error| malformed(error.line_number().unwrap_or(1)))?;
        let node_key = match required(&properties, "version")? {
            "0" => "broker.id",
            "1" => "node.id",
            other => return Err(unsupported("version", other)),
        };
        let node_id = required(&properties, node_key)?;
        Ok(MetaProperties {
            cluster_id: required(&properties, "cluster.id")?.to_owned(),
            node_id: node_id
                .parse()
                .ok()
                .filter(|id| *id >= 0)
                .map(BrokerId)
                .ok_or_else(|| unsupported(node_key, node_id))?,
            directory_id: properties
                .get("directory.id")
                .map(|id| directory_id(id).ok_or_else(|| unsupported("directory.id", id)))
                .transpose()?,
        })
    }

    /// The content of the file, version 1.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = PropertiesWriter::new(&mut bytes);
        writer.set_line_ending(LineEnding::LF);
        let mut put = |key: &str, value: &str| {
            // Writing to memory cannot fail, and the writer escapes what its encoding does not have.
            let _ = writer.write(key, value);
        };
        put("version", "1");
        put("cluster.id", &self.cluster_id);
        put("node.id", &self.node_id.to_string());
        if let Some(id) = self.directory_id {
            put("directory.id", &id.to_string());
        }
        let _ = writer.finish();
        bytes
    }
}

fn required<'a>(
    properties: &'a HashMap<String, String>,
    key: &'static str,
) -> Result<&'a str, CheckpointError> {
    properties.get(key).map(|value| value.trim()).ok_or(CheckpointError::MissingKey { key })
}

/// An id that a directory may have.
fn directory_id(text: &str) -> Option<DirectoryId> {
    text.trim().parse().ok().filter(|id: &DirectoryId| !id.is_reserved())
}

fn unsupported(key: &'static str, value: &str) -> CheckpointError {
    CheckpointError::Unsupported { key, value: value.to_owned() }
}

impl DirectoryId {
    /// A new id that no directory has and that is not reserved.
    pub fn random() -> DirectoryId {
        DirectoryId(TopicId::random().0)
    }

    /// True for the ids that Kafka keeps to say "unassigned", "lost" and the like: the first hundred.
    pub fn is_reserved(self) -> bool {
        self.0.as_u128() < 100
    }
}

impl fmt::Display for DirectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        TopicId(self.0).fmt(f)
    }
}

impl FromStr for DirectoryId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<DirectoryId, NotAnId> {
        text.parse().map(|TopicId(id)| DirectoryId(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_kafka_wrote_is_read() {
        let text = "#\n#Sat Nov 29 12:00:00 UTC 2025\nnode.id=7\nversion=1\ncluster.id=q1Sh-9_ISia_zwGINzRvyQ\n\
                    directory.id=Pf2VFwTNQXqRjPq0TC2zyg\n";
        let read = MetaProperties::read(text.as_bytes()).unwrap();
        assert_eq!((read.cluster_id.as_str(), read.node_id), ("q1Sh-9_ISia_zwGINzRvyQ", BrokerId(7)));
        assert_eq!(read.directory_id.unwrap().to_string(), "Pf2VFwTNQXqRjPq0TC2zyg");
    }

    #[test]
    fn a_file_of_version_0_names_the_node_by_its_old_key() {
        let read = MetaProperties::read(b"version=0\nbroker.id=3\ncluster.id=c\nnode.id=9\n").unwrap();
        assert_eq!((read.node_id, read.directory_id), (BrokerId(3), None));
    }

    #[test]
    fn what_is_written_is_version_1_with_one_key_a_line() {
        let written = MetaProperties { directory_id: None, ..example() }.write();
        assert_eq!(String::from_utf8(written).unwrap(), "version=1\ncluster.id=c\nnode.id=2\n");
    }

    #[test]
    fn missing_and_impossible_values_are_told() {
        let missing = |text: &str| match MetaProperties::read(text.as_bytes()) {
            Err(CheckpointError::MissingKey { key }) => key,
            other => panic!("{text:?}: {other:?}"),
        };
        assert_eq!(missing(""), "version");
        assert_eq!(missing("version=1\ncluster.id=c"), "node.id");
        assert_eq!(missing("version=1\nnode.id=1"), "cluster.id");
        let unsupported = |text: &str| match MetaProperties::read(text.as_bytes()) {
            Err(CheckpointError::Unsupported { key, .. }) => key,
            other => panic!("{text:?}: {other:?}"),
        };
        assert_eq!(unsupported("version=2"), "version");
        assert_eq!(unsupported("version=1\ncluster.id=c\nnode.id=-1"), "node.id");
        let reserved = "version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ";
        assert_eq!(unsupported(reserved), "directory.id");
    }

    #[test]
    fn a_random_directory_id_is_not_reserved() {
        assert!(!DirectoryId::random().is_reserved());
        assert!(DirectoryId(Uuid::from_u128(99)).is_reserved());
        assert!(!DirectoryId(Uuid::from_u128(100)).is_reserved());
    }

    proptest! {
        #[test]
        fn any_cluster_id_reads_back(cluster_id in "[!-~]{1,30}") {
            let meta = MetaProperties { cluster_id, ..example() };
            prop_assert_eq!(MetaProperties::read(&meta.write()), Ok(meta));
        }

        #[test]
        fn the_first_bytes_alone_are_read_or_refused(bytes in prop::collection::vec(0xe0u8..=0xff, 0..4)) {
            let _ = MetaProperties::read(&bytes);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = MetaProperties::read(&bytes);
        }
    }

    fn example() -> MetaProperties {
        MetaProperties {
            cluster_id: "c".into(),
            node_id: BrokerId(2),
            directory_id: Some(DirectoryId(Uuid::from_u128(1 << 100))),
        }
    }
}
