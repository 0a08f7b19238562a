//! The finalized features of the cluster, and which of them Tarn serves.

use std::collections::BTreeMap;

use tarn_wire::messages::FeatureLevelRecord;
use tarn_wire::messages::broker_registration_request::Feature;
use tarn_wire::metadata::MetadataRecord;

/// The feature that stands for the formats of metadata records.
pub const METADATA_VERSION: &str = "metadata.version";
/// The feature of the quorum itself; its level is in the log's control records.
pub const KRAFT_VERSION: &str = "kraft.version";
/// The feature of cluster mirroring, which only Tarn supports.
pub const MIRROR_VERSION: &str = "mirror.version";

/// The newest metadata.version there is: 4.4-IV2.
pub const METADATA_VERSION_LATEST: i16 = 33;
/// The oldest metadata.version that Tarn writes records for: 4.0-IV0.
pub const METADATA_VERSION_OLDEST: i16 = 22;

/// A feature and the levels that Tarn serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupportedFeature {
    /// Its name.
    pub name: &'static str,
    /// The lowest level.
    pub min: i16,
    /// The highest level.
    pub max: i16,
}

/// What Tarn serves; what a node lists when it registers and in ApiVersions.
pub const SUPPORTED: &[SupportedFeature] = &[
    SupportedFeature { name: KRAFT_VERSION, min: 0, max: 1 },
    SupportedFeature { name: METADATA_VERSION, min: METADATA_VERSION_OLDEST, max: METADATA_VERSION_LATEST },
    SupportedFeature { name: MIRROR_VERSION, min: 0, max: 1 },
];

/// The same as a node registers it.
pub fn to_register() -> Vec<Feature> {
    let feature = |supported: &SupportedFeature| Feature {
        name: supported.name.into(),
        min_supported_version: supported.min,
        max_supported_version: supported.max,
    };
    SUPPORTED.iter().map(feature).collect()
}

/// Finalized features and their levels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    levels: BTreeMap<String, i16>,
}

impl Features {
    /// The level of a feature; 0 where it is not finalized.
    pub fn level(&self, name: &str) -> i16 {
        self.levels.get(name).copied().unwrap_or(0)
    }

    /// The metadata.version.
    pub fn metadata_version(&self) -> i16 {
        self.level(METADATA_VERSION)
    }

    /// Every finalized feature.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i16)> {
        self.levels.iter().map(|(name, level)| (name.as_str(), *level))
    }

    /// The finalized features to advertise: those at levels that Tarn serves.
    pub fn advertised(&self) -> impl Iterator<Item = (&str, i16)> {
        self.iter().filter(|(name, level)| is_served(name, *level))
    }

    /// The finalized features at levels that Tarn does not serve: named once at start-up.
    pub fn not_served(&self) -> impl Iterator<Item = (&str, i16)> {
        self.iter().filter(|(name, level)| !is_served(name, *level))
    }

    pub(crate) fn put(&mut self, record: &FeatureLevelRecord) {
        match record.feature_level {
            0 => self.levels.remove(&*record.name),
            level => self.levels.insert(record.name.to_string(), level),
        };
    }

    pub(crate) fn to_records(&self, records: &mut Vec<MetadataRecord>) {
        let of = |(name, level): (&str, i16)| {
            FeatureLevelRecord { name: name.into(), feature_level: level }.into()
        };
        records.extend(self.iter().filter(|(name, _)| *name == METADATA_VERSION).map(of));
        records.extend(self.iter().filter(|(name, _)| *name != METADATA_VERSION).map(of));
    }
}

fn is_served(name: &str, level: i16) -> bool {
    SUPPORTED.iter().any(|feature| feature.name == name && (feature.min..=feature.max).contains(&level))
}
