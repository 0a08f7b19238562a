//! What all cores of a node share: who it is, its directories, its controller, its mirrors.
//!
//! Immutable once the node runs, but for what carries its own synchronisation.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use tarn_image::config::server::ServerConfig;
use tarn_image::configs::Configs;
use tarn_image::effective::BrokerView;
use tarn_image::effective::cleaner::CleanerConfig;
use tarn_log::ExportDir;
use tarn_mirror::manager::ManagerHandle;
use tarn_quorum::ControllerHandle;
use tarn_record::BrokerId;
use tarn_runtime::CoreId;
use tracing::error;

use crate::cleaning;
use crate::connections::ConnectionRules;
use crate::decompression::Decompression;
use crate::flushing::BackgroundFlusher;
use crate::kept_answers::KeptAnswers;
use crate::log_dirs::LogDirs;
use crate::loggers::Loggers;
use crate::metrics::CoreMetrics;

/// What a node shows to those who run it.
#[derive(Debug)]
pub struct Shown {
    /// The instruments of its cores, in the order of their numbers.
    pub metrics: Vec<Arc<CoreMetrics>>,
    /// The loggers of its process.
    pub loggers: Arc<Loggers>,
}

/// See the module.
pub struct Node {
    config: Arc<ServerConfig>,
    cluster_id: String,
    log_dirs: Arc<LogDirs>,
    controller: ControllerHandle,
    flusher: BackgroundFlusher,
    cleaner: Arc<cleaning::Shared>,
    exports: Arc<ExportDir>,
    shown: Shown,
    decompression: Decompression,
    all_topics: KeptAnswers,
    mirrors: OnceLock<ManagerHandle>,
    connection_rules: OnceLock<ConnectionRules>,
}

impl Node {
    /// A node that is about to start its cores.
    pub fn new(
        config: Arc<ServerConfig>,
        cluster_id: String,
        log_dirs: Arc<LogDirs>,
        controller: ControllerHandle,
        flusher: BackgroundFlusher,
        shown: Shown,
    ) -> Node {
        let exports = config.mirror_exports.of_node(&cluster_id, config.node_id);
        let exports = Arc::new(ExportDir::new(exports));
        // Until the first core has the metadata.
        let (configs, broker) = (Configs::default(), config.node_id.to_string());
        let cleaner = CleanerConfig::resolve(&BrokerView::new(&configs, &broker, &config.properties));
        let cleaner = Arc::new(cleaning::Shared::new(cleaner));
        let mirrors = OnceLock::new();
        let decompression = Decompression::of_cores(shown.metrics.len());
        Node {
            config,
            cluster_id,
            log_dirs,
            controller,
            flusher,
            cleaner,
            exports,
            shown,
            decompression,
            all_topics: KeptAnswers::default(),
            mirrors,
            connection_rules: OnceLock::new(),
        }
    }

    /// Its configuration.
    pub fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// Its `node.id`.
    pub fn broker_id(&self) -> BrokerId {
        self.config.node_id
    }

    /// The id of its cluster.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Its log directories.
    pub fn log_dirs(&self) -> &Arc<LogDirs> {
        &self.log_dirs
    }

    /// The controller of its cluster.
    pub fn controller(&self) -> &ControllerHandle {
        &self.controller
    }

    /// Its thread for flushes that nobody waits for.
    pub fn flusher(&self) -> &BackgroundFlusher {
        &self.flusher
    }

    /// What its cores and its cleaner's threads share.
    pub fn cleaner(&self) -> &Arc<cleaning::Shared> {
        &self.cleaner
    }

    /// Whose turn it is to decompress what clients sent.
    pub fn decompression(&self) -> &Decompression {
        &self.decompression
    }

    /// Answers to Metadata for all topics.
    pub fn all_topics(&self) -> &KeptAnswers {
        &self.all_topics
    }

    /// Where it keeps what it cuts off logs for a mirror.
    pub fn exports(&self) -> &Arc<ExportDir> {
        &self.exports
    }

    /// The instruments of its cores, in the order of their numbers.
    pub fn metrics(&self) -> &[Arc<CoreMetrics>] {
        &self.shown.metrics
    }

    /// The instruments of one core; of a core that the node has not, some that nobody reads.
    pub fn metrics_of(&self, core: CoreId) -> Arc<CoreMetrics> {
        self.shown.metrics.get(usize::from(core.0)).cloned().unwrap_or_default()
    }

    /// The loggers of its process.
    pub fn loggers(&self) -> &Loggers {
        &self.shown.loggers
    }

    /// The manager of its mirrors, once it runs.
    pub fn mirrors(&self) -> Option<&ManagerHandle> {
        self.mirrors.get()
    }

    /// The manager of the node's mirrors runs.
    pub fn set_mirrors(&self, manager: ManagerHandle) {
        // There is one manager for the life of a node; a second one would be the same.
        let _ = self.mirrors.set(manager);
    }

    /// Who may connect, once something listens.
    pub fn connection_rules(&self) -> Option<&ConnectionRules> {
        self.connection_rules.get()
    }

    /// These rule who may connect.
    pub fn set_connection_rules(&self, rules: ConnectionRules) {
        // A node listens once.
        let _ = self.connection_rules.set(rules);
    }

    /// The most bytes that one fetch answers with (`fetch.max.bytes`).
    pub fn fetch_max_bytes(&self) -> usize {
        usize::try_from(self.config.network.fetch_max_bytes).unwrap_or(0)
    }

    /// How many fetch sessions there may be on the node (`max.incremental.fetch.session.cache.slots`).
    pub fn fetch_sessions_max(&self) -> usize {
        usize::try_from(self.config.network.fetch_session_slots).unwrap_or(0)
    }

    /// The most partitions in one answer of DescribeTopicPartitions (`max.request.partition.size.limit`).
    pub fn partitions_per_answer(&self) -> usize {
        usize::try_from(self.config.network.max_request_partitions).unwrap_or(1).max(1)
    }

    /// How long a coordinator waits for what it wrote to be committed
    /// (`mirror.coordinator.write.timeout.ms`), in milliseconds.
    pub fn coordinator_write_ms(&self) -> u64 {
        u64::try_from(self.config.mirror.coordinator_write_timeout_ms).unwrap_or(0)
    }

    /// A disk failed that the node cannot be without: nothing may be promised any more. It is never retried into
    /// silence.
    pub fn storage_failed(&self, cause: &dyn Display) -> ! {
        error!(%cause, "storage failed; the process ends so that nothing is promised that cannot be kept");
        // Past what captures a test's output: it is the last line.
        let last_line = format!("tarn: storage failed: {cause}\n");
        io::stderr().write_all(last_line.as_bytes()).ok();
        std::process::exit(1)
    }
}
