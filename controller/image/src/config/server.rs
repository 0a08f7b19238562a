//! `server.properties`, read once at start into typed fields.
//!
//! Unknown keys and keys that Tarn knows but does not act on are named, not refused, but for unknown ones that begin with
//! `tarn.`; a bad value is refused with its key and range; what would silently lack security is refused.

mod admin;
mod directories;
mod listeners;
mod reader;

use std::fmt;
use std::path::PathBuf;

use tarn_record::ids::BrokerId;
use thiserror::Error;

use super::nearest::nearest;
use super::table;
use crate::effective::{StaticConfigs, cleaner};
use crate::limits::{CORES_MAX, CPU_MAX};
pub use admin::{AdminConfig, LogFormat};
pub use directories::{MirrorExports, is_a_logs_place};
pub use listeners::{Listener, host_and_port};
use reader::Reader;

/// What a server starts with.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Every key of the file as it was given; DescribeConfigs shows them as static.
    pub properties: StaticConfigs,
    /// `node.id`
    pub node_id: BrokerId,
    /// `process.roles`
    pub roles: Roles,
    /// `broker.rack`
    pub rack: Option<String>,
    /// `listeners`, all of them.
    pub listeners: Vec<Listener>,
    /// `advertised.listeners`, or what follows from `listeners`; those of controllers included.
    pub advertised: Vec<Listener>,
    /// `controller.listener.names`
    pub controller_listener_names: Vec<String>,
    /// The listener that brokers use among themselves.
    pub inter_broker_listener: String,
    /// Who the voters are.
    pub quorum: QuorumConfig,
    /// `log.dirs`
    pub log_dirs: Vec<PathBuf>,
    /// `metadata.log.dir`, or the first of `log_dirs`.
    pub metadata_log_dir: PathBuf,
    /// `tarn.mirror.export.dir`, or `mirror-exports` in `metadata_log_dir`.
    pub mirror_exports: MirrorExports,
    /// The metadata log.
    pub metadata_log: MetadataLogConfig,
    /// Topics as they are created.
    pub topics: TopicDefaults,
    /// Connections and requests.
    pub network: NetworkConfig,
    /// Logs and their checkpoints.
    pub storage: StorageConfig,
    /// Cluster mirroring.
    pub mirror: MirrorNodeConfig,
    /// Metrics, health checks and log lines.
    pub admin: AdminConfig,
    /// `tarn.cores`; `None` for every CPU.
    pub cores: Option<Vec<usize>>,
    /// `tarn.mirror.cores`; `None` for the default.
    pub mirror_cores: Option<Vec<usize>>,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// It holds partitions and serves clients.
    pub broker: bool,
    /// It is a member of the quorum.
    pub controller: bool,
}

/// Where the quorum is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumConfig {
    /// `controller.quorum.voters`: node id, host, port. Empty for a dynamic quorum.
    pub voters: Vec<(BrokerId, String, u16)>,
    /// `controller.quorum.bootstrap.servers`
    pub bootstrap_servers: Vec<(String, u16)>,
}

/// The metadata log and its snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataLogConfig {
    /// `metadata.log.segment.bytes`
    pub segment_bytes: i32,
    /// `metadata.log.segment.ms`
    pub segment_ms: i64,
    /// `metadata.log.max.record.bytes.between.snapshots`
    pub max_record_bytes_between_snapshots: i64,
    /// `metadata.log.max.snapshot.interval.ms`; 0 for never.
    pub max_snapshot_interval_ms: i64,
    /// `metadata.max.idle.interval.ms`; 0 for no limit.
    pub max_idle_interval_ms: i64,
    /// `metadata.max.retention.bytes`
    pub max_retention_bytes: i64,
    /// `metadata.max.retention.ms`
    pub max_retention_ms: i64,
}

/// What a topic gets when nobody says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicDefaults {
    /// `num.partitions`
    pub num_partitions: i32,
    /// `default.replication.factor`
    pub replication_factor: i16,
    /// `delete.topic.enable`
    pub deletion_enabled: bool,
    /// `auto.create.topics.enable`
    pub auto_created: bool,
}

/// Connections, requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkConfig {
    /// `socket.request.max.bytes`
    pub request_max_bytes: i32,
    /// `socket.send.buffer.bytes`; `None` leaves it to the kernel.
    pub send_buffer_bytes: Option<usize>,
    /// `socket.receive.buffer.bytes`; `None` leaves it to the kernel.
    pub receive_buffer_bytes: Option<usize>,
    /// `socket.listen.backlog.size`
    pub backlog: i32,
    /// `connections.max.idle.ms`
    pub idle_ms: i64,
    /// `queued.max.request.bytes`; `None` for what the node has cores for.
    pub queued_max_request_bytes: Option<usize>,
    /// `fetch.max.bytes`
    pub fetch_max_bytes: i32,
    /// `max.incremental.fetch.session.cache.slots`
    pub fetch_session_slots: i32,
    /// `max.request.partition.size.limit`
    pub max_request_partitions: i32,
}

/// Logs and their checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageConfig {
    /// `log.flush.offset.checkpoint.interval.ms`
    pub recovery_point_interval_ms: i64,
    /// `log.flush.start.offset.checkpoint.interval.ms`
    pub log_start_interval_ms: i64,
    /// `replica.high.watermark.checkpoint.interval.ms`
    pub high_watermark_interval_ms: i64,
    /// `log.retention.check.interval.ms`
    pub retention_check_interval_ms: i64,
}

/// Cluster mirroring on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorNodeConfig {
    /// `mirror.state.topic.num.partitions`
    pub state_topic_partitions: i32,
    /// `mirror.state.topic.replication.factor`
    pub state_topic_replication_factor: i16,
    /// `mirror.num.replica.fetchers`
    pub fetchers: i32,
    /// `mirror.metadata.refresh.interval.ms`
    pub refresh_interval_ms: i64,
    /// `mirror.failed.retry.initial.backoff.ms`
    pub retry_initial_backoff_ms: i64,
    /// `mirror.failed.retry.max.backoff.ms`
    pub retry_max_backoff_ms: i64,
    /// `mirror.failed.retry.max.attempts`
    pub retry_max_attempts: i32,
    /// `mirror.coordinator.write.timeout.ms`
    pub coordinator_write_timeout_ms: i64,
    /// `tarn.mirror.fetch.memory.bytes`
    pub fetch_memory_bytes: i64,
    /// `tarn.mirror.batch.max.bytes`
    pub batch_max_bytes: i32,
}

/// Something a person should read once at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A key of the file that Tarn does not know; ignored.
    Unknown {
        /// The key.
        key: String,
    },
    /// A key of Kafka's that Tarn accepts and does not act on.
    NotActedOn {
        /// The key.
        key: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Unknown { key } => write!(f, "{key} is not known and is ignored"),
            Notice::NotActedOn { key } => write!(f, "{key} is accepted but has no effect"),
        }
    }
}

/// Why a file is refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// It is no properties file.
    #[error("not a properties file: {0}")]
    Syntax(String),
    /// A value is not of its type or range.
    #[error("{0}")]
    Invalid(String),
    /// A key without default is missing.
    #[error("Missing required configuration \"{0}\" which has no default value.")]
    Missing(&'static str),
    /// A setting that would have an effect on security that Tarn cannot give yet.
    #[error("{key}={value} is not supported yet: {why}")]
    Unsupported {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What there is instead.
        why: &'static str,
    },
    /// A key that begins as Tarn's own do, and is none: it is mistyped, or of another version.
    #[error("{key} is not known; the key nearest to it is {nearest}")]
    UnknownOwn {
        /// The key.
        key: String,
        /// One that there is.
        nearest: &'static str,
    },
    /// Two settings that contradict each other.
    #[error("{0}")]
    Inconsistent(String),
}

impl ServerConfig {
    /// Reads the text of a properties file.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str) -> Result<(ServerConfig, Vec<Notice>), ConfigError> {
        let given =
            java_properties::read(text.as_bytes()).map_err(|error| ConfigError::Syntax(error.to_string()))?;
        let given: StaticConfigs = given.into_iter().collect();
        let reader = Reader::new(&given);
        refuse_mistyped(&given)?;
        reader.check_all()?;
        let config = read(&reader, &given)?;
        let notices = notices(&given, &reader);
        Ok((config, notices))
    }

    /// The listeners of brokers: what clients connect to.
    pub fn broker_listeners(&self) -> impl Iterator<Item = &Listener> {
        self.listeners.iter().filter(|listener| !self.is_controller_listener(&listener.name))
    }

    /// What clients are told to connect to.
    pub fn advertised_broker_listeners(&self) -> impl Iterator<Item = &Listener> {
        self.advertised.iter().filter(|listener| !self.is_controller_listener(&listener.name))
    }

    /// What controllers are told to connect to.
    pub fn advertised_controller_listeners(&self) -> impl Iterator<Item = &Listener> {
        self.advertised.iter().filter(|listener| self.is_controller_listener(&listener.name))
    }

    /// True for a listener of controllers.
    pub fn is_controller_listener(&self, name: &str) -> bool {
        self.controller_listener_names.iter().any(|known| known == name)
    }
}

fn read(reader: &Reader<'_>, given: &StaticConfigs) -> Result<ServerConfig, ConfigError> {
    let node_id = match (reader.optional("node.id")?, reader.optional("broker.id")?) {
        (Some(id), _) => id,
        (None, Some(id)) if given.contains_key("broker.id") => id,
        _ => return Err(ConfigError::Missing("node.id")),
    };
    let node_id: i32 = node_id.parse().map_err(|_| ConfigError::Missing("node.id"))?;
    let roles = roles(reader)?;
    refuse_security(reader)?;
    check_cleaner(reader)?;
    let names = listeners::Names::read(reader, roles)?;
    let directories = directories::Directories::read(reader)?;
    let mut properties = given.clone();
    properties.entry("node.id".to_owned()).or_insert_with(|| node_id.to_string());
    properties.insert("broker.id".to_owned(), node_id.to_string());
    Ok(ServerConfig {
        properties,
        node_id: BrokerId(node_id),
        roles,
        rack: reader.optional("broker.rack")?,
        quorum: quorum(reader, node_id, roles)?,
        log_dirs: directories.logs,
        metadata_log_dir: directories.metadata_log,
        mirror_exports: directories.mirror_exports,
        metadata_log: metadata_log(reader)?,
        topics: TopicDefaults {
            num_partitions: reader.number("num.partitions")?,
            replication_factor: reader.number("default.replication.factor")?,
            deletion_enabled: reader.is_true("delete.topic.enable")?,
            auto_created: reader.is_true("auto.create.topics.enable")?,
        },
        network: network(reader)?,
        storage: storage(reader)?,
        mirror: mirror(reader, given)?,
        admin: AdminConfig::read(reader)?,
        cores: cores(reader, "tarn.cores")?,
        mirror_cores: cores(reader, "tarn.mirror.cores")?,
        listeners: names.listeners,
        advertised: names.advertised,
        controller_listener_names: names.controllers,
        inter_broker_listener: names.inter_broker,
    })
}

/// Refuses keys that can only be meant for Tarn and that it does not have: a typo would change what the node does, silently.
fn refuse_mistyped(given: &StaticConfigs) -> Result<(), ConfigError> {
    let is_own = |key: &str| key.starts_with(OWN_PREFIX);
    let Some(key) = given.keys().find(|key| is_own(key) && table::broker_key(key).is_none()) else {
        return Ok(());
    };
    let own = table::broker_keys().map(|known| known.name).filter(|name| is_own(name));
    let nearest = nearest(key, own).unwrap_or(OWN_PREFIX);
    Err(ConfigError::UnknownOwn { key: key.clone(), nearest })
}

/// How the keys begin that Kafka does not have.
const OWN_PREFIX: &str = "tarn.";

fn roles(reader: &Reader<'_>) -> Result<Roles, ConfigError> {
    let roles = reader.list("process.roles")?;
    let has = |name: &str| roles.iter().any(|role| role == name);
    match (has("broker"), has("controller")) {
        (false, false) => Err(ConfigError::Missing("process.roles")),
        (broker, controller) => Ok(Roles { broker, controller }),
    }
}

fn refuse_security(reader: &Reader<'_>) -> Result<(), ConfigError> {
    let refuse = |key, value, why| Err(ConfigError::Unsupported { key, value, why });
    let authorizer = reader.text("authorizer.class.name")?;
    if !authorizer.is_empty() {
        return refuse("authorizer.class.name", authorizer, "every client may do everything");
    }
    let protocol = reader.text("security.inter.broker.protocol")?;
    if protocol != "PLAINTEXT" {
        return refuse("security.inter.broker.protocol", protocol, "listeners are PLAINTEXT only");
    }
    if reader.is_given("delegation.token.secret.key") {
        return refuse(
            "delegation.token.secret.key",
            "[hidden]".to_owned(),
            "there are no delegation tokens",
        );
    }
    Ok(())
}

/// What the cleaner acts on is looked up while the node runs; here only that it makes sense together.
fn check_cleaner(reader: &Reader<'_>) -> Result<(), ConfigError> {
    let threads: i64 = reader.number("log.cleaner.threads")?;
    let bytes: i64 = reader.number("log.cleaner.dedupe.buffer.size")?;
    let is_enabled = reader.is_true("log.cleaner.enable")?;
    if is_enabled && threads > 0 && bytes / threads <= cleaner::THREAD_BUFFER_BYTES {
        return Err(ConfigError::Inconsistent(
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.".to_owned(),
        ));
    }
    Ok(())
}

fn quorum(reader: &Reader<'_>, node_id: i32, roles: Roles) -> Result<QuorumConfig, ConfigError> {
    let voters = reader
        .list("controller.quorum.voters")?
        .iter()
        .map(|voter| {
            let (id, address) = voter.split_once('@')?;
            let (host, port) = host_and_port(address)?;
            Some((BrokerId(id.parse().ok()?), host, port))
        })
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| reader.refuse("controller.quorum.voters", "id@host:port,... is expected"))?;
    let bootstrap_servers = reader
        .list("controller.quorum.bootstrap.servers")?
        .iter()
        .map(|server| host_and_port(server))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| reader.refuse("controller.quorum.bootstrap.servers", "host:port,... is expected"))?;
    if voters.is_empty() && bootstrap_servers.is_empty() {
        return Err(ConfigError::Inconsistent(
            "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap \
             controllers or controller.quorum.voters must contain a parseable set of controllers."
                .to_owned(),
        ));
    }
    let is_voter = voters.is_empty() || voters.iter().any(|(id, ..)| id.0 == node_id);
    if roles.controller && !is_voter {
        return Err(ConfigError::Inconsistent(format!(
            "If process.roles contains the 'controller' role, the node id {node_id} must be included in the set of \
             voters controller.quorum.voters"
        )));
    }
    Ok(QuorumConfig { voters, bootstrap_servers })
}

fn metadata_log(reader: &Reader<'_>) -> Result<MetadataLogConfig, ConfigError> {
    Ok(MetadataLogConfig {
        segment_bytes: reader.number("metadata.log.segment.bytes")?,
        segment_ms: reader.number("metadata.log.segment.ms")?,
        max_record_bytes_between_snapshots: reader
            .number("metadata.log.max.record.bytes.between.snapshots")?,
        max_snapshot_interval_ms: reader.number("metadata.log.max.snapshot.interval.ms")?,
        max_idle_interval_ms: reader.number("metadata.max.idle.interval.ms")?,
        max_retention_bytes: reader.number("metadata.max.retention.bytes")?,
        max_retention_ms: reader.number("metadata.max.retention.ms")?,
    })
}

fn network(reader: &Reader<'_>) -> Result<NetworkConfig, ConfigError> {
    let positive = |key| -> Result<Option<usize>, ConfigError> {
        let number: i64 = reader.number(key)?;
        Ok(usize::try_from(number).ok().filter(|bytes| *bytes > 0))
    };
    Ok(NetworkConfig {
        request_max_bytes: reader.number("socket.request.max.bytes")?,
        send_buffer_bytes: positive("socket.send.buffer.bytes")?,
        receive_buffer_bytes: positive("socket.receive.buffer.bytes")?,
        backlog: reader.number("socket.listen.backlog.size")?,
        idle_ms: reader.number("connections.max.idle.ms")?,
        queued_max_request_bytes: positive("queued.max.request.bytes")?,
        fetch_max_bytes: reader.number("fetch.max.bytes")?,
        fetch_session_slots: reader.number("max.incremental.fetch.session.cache.slots")?,
        max_request_partitions: reader.number("max.request.partition.size.limit")?,
    })
}

fn storage(reader: &Reader<'_>) -> Result<StorageConfig, ConfigError> {
    Ok(StorageConfig {
        recovery_point_interval_ms: reader.number("log.flush.offset.checkpoint.interval.ms")?,
        log_start_interval_ms: reader.number("log.flush.start.offset.checkpoint.interval.ms")?,
        high_watermark_interval_ms: reader.number("replica.high.watermark.checkpoint.interval.ms")?,
        retention_check_interval_ms: reader.number("log.retention.check.interval.ms")?,
    })
}

fn mirror(reader: &Reader<'_>, given: &StaticConfigs) -> Result<MirrorNodeConfig, ConfigError> {
    const OLD_NAME: &str = "mirror.topic.num.partitions";
    let state_topic_partitions = match given.get(OLD_NAME) {
        Some(text) if !reader.is_given("mirror.state.topic.num.partitions") => {
            text.trim().parse().ok().filter(|count| *count >= 1).ok_or_else(|| {
                ConfigError::Invalid(format!(
                    "Invalid value {text} for configuration {OLD_NAME}: Value must be at least 1"
                ))
            })?
        }
        _ => reader.number("mirror.state.topic.num.partitions")?,
    };
    Ok(MirrorNodeConfig {
        state_topic_partitions,
        state_topic_replication_factor: reader.number("mirror.state.topic.replication.factor")?,
        fetchers: reader.number("mirror.num.replica.fetchers")?,
        refresh_interval_ms: reader.number("mirror.metadata.refresh.interval.ms")?,
        retry_initial_backoff_ms: reader.number("mirror.failed.retry.initial.backoff.ms")?,
        retry_max_backoff_ms: reader.number("mirror.failed.retry.max.backoff.ms")?,
        retry_max_attempts: reader.number("mirror.failed.retry.max.attempts")?,
        coordinator_write_timeout_ms: reader.number("mirror.coordinator.write.timeout.ms")?,
        fetch_memory_bytes: reader.number("tarn.mirror.fetch.memory.bytes")?,
        batch_max_bytes: reader.number("tarn.mirror.batch.max.bytes")?,
    })
}

/// `0`, `0-3`, `0,0,1,1`: a number given twice makes two executors on that CPU. Whether there is such a CPU
/// is for the machine to say.
fn cores(reader: &Reader<'_>, key: &'static str) -> Result<Option<Vec<usize>>, ConfigError> {
    let text = reader.text(key)?;
    if text.is_empty() {
        return Ok(None);
    }
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let bounds = first.parse::<usize>().ok().zip(last.parse::<usize>().ok());
        let (first, last) = bounds
            .filter(|(first, last)| first <= last && *last <= CPU_MAX)
            .ok_or_else(|| reader.refuse(key, "CPU numbers such as 0, 0-3 or 0,0,1,1 are expected"))?;
        if cpus.len() + (last - first) >= CORES_MAX {
            return Err(reader.refuse(key, &format!("a node has at most {CORES_MAX} of these cores")));
        }
        cpus.extend(first..=last);
    }
    Ok(Some(cpus))
}

fn notices(given: &StaticConfigs, reader: &Reader<'_>) -> Vec<Notice> {
    let used = reader.used();
    given
        .keys()
        .filter(|key| !used.contains(key.as_str()) && key.as_str() != "mirror.topic.num.partitions")
        .map(|key| match table::broker_key(key) {
            Some(_) => Notice::NotActedOn { key: key.clone() },
            None => Notice::Unknown { key: key.clone() },
        })
        .collect()
}

impl StorageConfig {
    /// How often logs are looked through for what retention deletes, in milliseconds.
    pub fn retention_check_interval_ms(&self) -> u64 {
        const LEAST_MS: u64 = 10;
        u64::try_from(self.retention_check_interval_ms).unwrap_or(0).max(LEAST_MS)
    }

    /// How often the checkpoint files are written, in milliseconds. They are written together, so the
    /// shortest of the three intervals rules them all.
    pub fn checkpoint_interval_ms(&self) -> u64 {
        const LEAST_MS: u64 = 100;
        let shortest = self
            .recovery_point_interval_ms
            .min(self.log_start_interval_ms)
            .min(self.high_watermark_interval_ms);
        u64::try_from(shortest).unwrap_or(0).max(LEAST_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = "process.roles=broker,controller\nnode.id=1\n\
        controller.quorum.bootstrap.servers=127.0.0.1:9093\n\
        listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n\
        controller.listener.names=CONTROLLER\nlog.dirs=/a, /b\n";

    #[test]
    fn a_combined_node_is_read() {
        let (config, notices) = parse("num.partitions=3\nbroker.rack=r1\n").unwrap();
        assert_eq!(notices, []);
        assert_eq!((config.node_id, config.roles), (BrokerId(1), Roles { broker: true, controller: true }));
        assert_eq!(config.topics.num_partitions, 3);
        assert_eq!(config.rack.as_deref(), Some("r1"));
        assert_eq!(config.log_dirs, [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!(config.metadata_log_dir, PathBuf::from("/a"));
        let names: Vec<_> = config.broker_listeners().map(|listener| listener.to_string()).collect();
        assert_eq!(names, ["PLAINTEXT://127.0.0.1:9092"]);
        assert_eq!(config.inter_broker_listener, "PLAINTEXT");
        assert_eq!(config.properties.get("broker.id").map(String::as_str), Some("1"));
        assert_eq!(config.mirror.state_topic_partitions, 50);
    }

    #[test]
    fn a_bad_value_is_refused_with_key_value_and_range() {
        assert_eq!(
            refused("num.partitions=0\n"),
            "Invalid value 0 for configuration num.partitions: Value must be at least 1"
        );
        assert_eq!(
            refused("socket.send.buffer.bytes=x\n"),
            "Invalid value x for configuration socket.send.buffer.bytes: Not a number of type INT"
        );
        assert_eq!(
            refused("tarn.cores=3-1\n"),
            "Invalid value 3-1 for configuration tarn.cores: CPU numbers such as 0, 0-3 or 0,0,1,1 are expected"
        );
        let many = vec!["0"; 257].join(",");
        for text in ["0-256", "0-4095,0-4095", &many] {
            assert_eq!(
                refused(&format!("tarn.mirror.cores={text}\n")),
                format!(
                    "Invalid value {text} for configuration tarn.mirror.cores: a node has at most 256 of these cores"
                )
            );
        }
        assert_eq!(
            refused("background.threads=0\n"),
            "Invalid value 0 for configuration background.threads: Value must be at least 1"
        );
    }

    #[test]
    fn what_is_too_long_for_the_metadata_is_refused_whichever_key_it_is() {
        let long = "a".repeat(40_000);
        for (key, value) in [
            ("broker.rack", long.clone()),
            ("advertised.listeners", format!("PLAINTEXT://{long}:1")),
            ("controller.listener.names", format!("CONTROLLER,{long}")),
        ] {
            let refused = refused(&format!("{key}={value}\n"));
            let range = format!("configuration {key}: It is {} bytes long", value.len());
            assert!(refused.contains(&range) && refused.ends_with("0 to 32767 bytes"), "{refused}");
        }
    }

    #[test]
    fn directories_and_listeners_that_cannot_be_are_refused() {
        let refused_with = |key: &str, value: &str| {
            let others = MINIMAL.lines().filter(|line| !line.starts_with(&format!("{key}=")));
            let lines: Vec<&str> = others.collect();
            ServerConfig::parse(&format!("{}\n{key}={value}\n", lines.join("\n"))).unwrap_err().to_string()
        };
        assert!(refused_with("log.dirs", "").contains("At least one log directory"));
        assert!(refused_with("log.dirs", "/a,/b,/a").contains("listed once"));
        for hosts in [("127.0.0.1", "127.0.0.1"), ("", "127.0.0.1"), ("0.0.0.0", "localhost")] {
            let value = format!("PLAINTEXT://{}:9092,CONTROLLER://{}:9092", hosts.0, hosts.1);
            assert!(refused_with("listeners", &value).contains("a different port"), "{value}");
        }
        assert!(refused("advertised.listeners=OTHER://a:1\n").contains("equal to or a subset of"));
    }

    #[test]
    fn a_cleaner_without_memory_for_its_threads_is_refused() {
        let bytes = "log.cleaner.threads=2\nlog.cleaner.dedupe.buffer.size=2097152\n";
        assert_eq!(refused(bytes), "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.");
        assert!(parse(&format!("{bytes}log.cleaner.enable=false\n")).is_ok());
    }

    #[test]
    fn what_would_lack_security_is_refused() {
        assert_eq!(
            refused("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"),
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer is not supported yet: \
             every client may do everything"
        );
        assert!(
            refused("listener.security.protocol.map=PLAINTEXT:SSL,CONTROLLER:PLAINTEXT\n")
                .contains("is not supported yet")
        );
    }

    #[test]
    fn unknown_and_idle_keys_are_named() {
        let (_, notices) = parse("nosuch=1\nnum.io.threads=9\nlog.roll.hours=5\n").unwrap();
        assert_eq!(
            notices,
            [Notice::Unknown { key: "nosuch".into() }, Notice::NotActedOn { key: "num.io.threads".into() }]
        );
    }

    #[test]
    fn an_unknown_key_of_our_own_is_refused_with_the_nearest_one() {
        for (mistyped, meant) in [
            ("tarn.core", "tarn.cores"),
            ("tarn.mirror.core", "tarn.mirror.cores"),
            ("tarn.admin.listeners", "tarn.admin.listener"),
            ("tarn.metric.topics.max", "tarn.metrics.topics.max"),
        ] {
            let expected = format!("{mistyped} is not known; the key nearest to it is {meant}");
            assert_eq!(refused(&format!("{mistyped}=0\n")), expected);
        }
        assert!(parse("tarncores=0\nlistener.name.tarn.cores=0\n").is_ok());
    }

    #[test]
    fn what_is_only_validated_is_named_as_idle() {
        for (key, value) in [
            ("log.cleaner.io.buffer.size", "5"),
            ("unclean.leader.election.enable", "true"),
            ("replica.lag.time.max.ms", "5"),
            ("controller.quorum.append.linger.ms", "5"),
            ("mirror.coordinator.append.linger.ms", "5"),
            ("mirror.coordinator.load.buffer.size", "5"),
        ] {
            let (_, notices) = parse(&format!("{key}={value}\n")).unwrap();
            assert_eq!(notices, [Notice::NotActedOn { key: key.into() }]);
        }
    }

    #[test]
    fn sizes_of_minus_one_are_left_to_the_kernel_or_to_the_node() {
        let sizes = |more: &str| {
            let network = parse(more).unwrap().0.network;
            (network.receive_buffer_bytes, network.send_buffer_bytes, network.queued_max_request_bytes)
        };
        assert_eq!(sizes(""), (None, None, None));
        let minus_one =
            "socket.receive.buffer.bytes=-1\nsocket.send.buffer.bytes=-1\nqueued.max.request.bytes=-1\n";
        assert_eq!(sizes(minus_one), (None, None, None));
        let given = "socket.receive.buffer.bytes=5\nsocket.send.buffer.bytes=6\nqueued.max.request.bytes=7\n";
        assert_eq!(sizes(given), (Some(5), Some(6), Some(7)));
    }

    #[test]
    fn checkpoints_are_written_as_often_as_the_shortest_interval_asks() {
        let interval = |more: &str| parse(more).unwrap().0.storage.checkpoint_interval_ms();
        assert_eq!(interval(""), 5000, "that of the high watermarks");
        assert_eq!(interval("replica.high.watermark.checkpoint.interval.ms=90000\n"), 60_000);
        assert_eq!(interval("log.flush.offset.checkpoint.interval.ms=1500\n"), 1500);
        assert_eq!(interval("log.flush.start.offset.checkpoint.interval.ms=0\n"), 100, "never without pause");
    }

    #[test]
    fn a_cpu_given_twice_makes_two_cores() {
        let (config, _) = parse("tarn.cores=0-255\n").unwrap();
        assert_eq!(config.cores.map(|cores| cores.len()), Some(256), "the most there may be");
        let (config, _) = parse("tarn.cores=0,0-2\n").unwrap();
        assert_eq!(config.cores, Some(vec![0, 0, 1, 2]));
        assert_eq!(config.mirror_cores, None);
    }

    fn parse(more: &str) -> Result<(ServerConfig, Vec<Notice>), ConfigError> {
        ServerConfig::parse(&format!("{MINIMAL}{more}"))
    }

    fn refused(more: &str) -> String {
        parse(more).unwrap_err().to_string()
    }
}
