//! Directories that look like a partition's and are none that the metadata know.

use std::mem;
use std::path::PathBuf;

use tarn_log::LogDirError;
use tarn_record::{PartitionIndex, TopicId};

use super::{LogDirs, Place};

/// A directory that was put aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// What it was called, as a partition.
    pub topic: String,
    /// Its number.
    pub partition: PartitionIndex,
    /// The topic whose it says it is; zero where it does not say.
    pub topic_id: TopicId,
    /// Where it is now.
    pub path: PathBuf,
}

impl LogDirs {
    /// Renames the directories of partitions that the metadata does not know, and keeps them: the deletion of the topic
    /// was cut short, the metadata was lost, or it is a copy of a log under another name. `exists` is asked with the name,
    /// and the topic's id, which is zero where the directory does not say.
    ///
    /// # Errors
    /// A directory that cannot be renamed.
    pub fn put_strays_aside(
        &self,
        exists: impl Fn(&str, PartitionIndex, TopicId) -> bool,
    ) -> Result<Vec<Stray>, LogDirError> {
        let mut places = self.places();
        let mut strays = Vec::new();
        for (name, twin) in mem::take(&mut places.twins) {
            let stray = match exists(&name.0, name.1, twin.topic_id) {
                true => places.insert(name.clone(), twin),
                false => Some(twin),
            };
            strays.extend(stray.map(|stray| (name, stray)));
        }
        let found = places.by_name.iter().filter(|(_, place)| place.found.is_some());
        let unknown = found.filter(|(name, place)| !exists(&name.0, name.1, place.topic_id));
        let names: Vec<_> = unknown.map(|(name, _)| name.clone()).collect();
        strays.extend(names.into_iter().filter_map(|name| places.remove(&name).map(|place| (name, place))));
        let (mut renamed, mut refused) = (Vec::with_capacity(strays.len()), None);
        for (name, place) in strays {
            let Some(found) = &place.found else { continue };
            match self.dirs[place.dir].rename_as_stray(&found.partition) {
                Ok(path) => {
                    let (topic, partition) = name.clone();
                    renamed.push(Stray { topic, partition, topic_id: place.topic_id, path });
                    places.leave_out(place.dir, name);
                }
                // Whoever wants its place has to make way first.
                Err(error) => {
                    if !places.by_name.contains_key(&name) {
                        places.insert(name, Place { is_stray: true, ..place });
                    }
                    refused = Some(error);
                }
            }
        }
        refused.map_or(Ok(renamed), Err)
    }
}
