//! A source of many small topics that can be lost: Apache Kafka, or another Tarn, which is cheaper.

use std::path::Path;

use clap::ValueEnum;

use super::kafka::{Kafka, Kit};
use super::relay::Relay;
use super::tarn::{Build, Tarn};
use crate::failure::Result;

/// What the source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SourceKind {
    /// Apache Kafka 4.4.
    Kafka,
    /// Another Tarn of the same build.
    Tarn,
}

impl SourceKind {
    /// Its name in tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            SourceKind::Kafka => "Apache Kafka 4.4",
            SourceKind::Tarn => "another Tarn",
        }
    }

    /// Its name in JSON.
    pub(crate) fn key(self) -> &'static str {
        match self {
            SourceKind::Kafka => "kafka",
            SourceKind::Tarn => "tarn",
        }
    }
}

/// A source that runs. Dropped, it is killed.
#[derive(Debug)]
pub(crate) enum SmallSource {
    /// Apache Kafka.
    Kafka(Kafka),
    /// Tarn.
    Tarn(Tarn),
}

impl SmallSource {
    /// Starts one with its files in `directory`, where an earlier one may have left some.
    pub(crate) fn start(kind: SourceKind, kit: &Kit, build: &Build, directory: &Path) -> Result<SmallSource> {
        SmallSource::start_behind(None, kind, kit, build, directory)
    }

    /// The same with a relay that mirrors are to ask.
    pub(crate) fn start_behind(
        relay: Option<&Relay>,
        kind: SourceKind,
        kit: &Kit,
        build: &Build,
        directory: &Path,
    ) -> Result<SmallSource> {
        let behind = relay.map(Relay::address);
        let source = match kind {
            SourceKind::Kafka => {
                Kafka::start_behind(behind, kit, "source", directory).map(SmallSource::Kafka)?
            }
            SourceKind::Tarn => {
                Tarn::start_behind(behind, SOURCE_CLUSTER_ID, build, directory).map(SmallSource::Tarn)?
            }
        };
        if let Some(relay) = relay {
            relay.point_at(source.bootstrap());
        }
        Ok(source)
    }

    /// The address of its listener.
    pub(crate) fn bootstrap(&self) -> &str {
        match self {
            SmallSource::Kafka(kafka) => kafka.bootstrap(),
            SmallSource::Tarn(tarn) => tarn.bootstrap(),
        }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        match self {
            SmallSource::Kafka(kafka) => kafka.id(),
            SmallSource::Tarn(tarn) => tarn.id(),
        }
    }

    /// SIGKILL.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

const SOURCE_CLUSTER_ID: &str = "VGFyblBlcmZTb3VyY2UwMg";
