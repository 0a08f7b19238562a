//! `tarn` itself: formatted, started, killed and asked through its command line.

use crate::cluster::Cluster;
use crate::kafka::copy_directory;
use crate::kit_files::tarn_binary;
use crate::ports::{free_port, local};
use crate::process::{Finished, Process, guarded, run};
use crate::waiting::until_some;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const READY: Duration = Duration::from_secs(30);
const STOPPED: Duration = Duration::from_secs(30);
const COMMAND: Duration = Duration::from_secs(60);
const SHOWN: Duration = Duration::from_secs(60);

const NODE_ID: &str = "1";
/// The cluster id of every Tarn that these tests start, but for copies and sources.
pub const CLUSTER_ID: &str = "VGFybkRlc3RpbmF0aW9uQQ";

/// That of a Tarn that is another one's source.
pub const SOURCE_CLUSTER_ID: &str = "QVRhcm5Bc1RoZVNvdXJjZQ";

/// Whether the tarn that is tested can be told to die at a step. Crash points are in builds with assertions alone;
/// `tests/run.sh --release` tests the others.
pub fn has_crash_points() -> bool {
    std::env::var("TARN_PROFILE").map_or(true, |profile| profile != "release")
}

/// How one Tarn differs from the others.
#[derive(Clone, Debug, Default)]
pub struct TarnOptions {
    /// `tarn.cores`, where it is set.
    pub cores: Option<&'static str>,
    /// `tarn.mirror.cores`, where it is set.
    pub mirror_cores: Option<&'static str>,
    /// Its cluster id, where it is not the usual one.
    pub cluster_id: Option<&'static str>,
    /// Further lines of `server.properties`.
    pub properties: Vec<(String, String)>,
}

/// A cluster of one Tarn, running or not.
#[derive(Debug)]
pub struct Tarn {
    // Before the directory: it is dropped first, and prints from a file there.
    process: Option<Process>,
    port: u16,
    controller_port: u16,
    directory: TempDir,
    options: TarnOptions,
    environment: Vec<(String, String)>,
    /// A disk of its own for one of its directories.
    disk: Option<SmallDisk>,
}

/// A disk in memory, which is gone with the process.
#[derive(Clone, Copy, Debug)]
struct SmallDisk {
    of: OnDisk,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnDisk {
    Logs,
    Exports,
}

/// One line of `tarn mirror describe --json`.
#[derive(Clone, Debug, PartialEq)]
pub struct MirrorPartition {
    /// The topic.
    pub topic: String,
    /// The partition's number.
    pub partition: i64,
    /// The state's name.
    pub state: String,
    /// Records not copied yet; `None` where it is unknown.
    pub lag: Option<i64>,
    /// Why it is not well, by code.
    pub reason_code: Option<String>,
    /// The same in words.
    pub error_message: Option<String>,
    /// How long ago the source last answered; `None` where it never did.
    pub last_fetch_age_ms: Option<i64>,
}

impl Tarn {
    /// Formats a directory, starts the server, and waits until it answers.
    ///
    /// # Panics
    /// Where it does not in 30 seconds.
    pub fn start(options: &TarnOptions) -> Tarn {
        let mut tarn = Tarn::formatted(options);
        tarn.start_again();
        tarn
    }

    /// `start`, with a log directory on a disk in memory that holds so many bytes and is gone with the process; the
    /// metadata log is elsewhere.
    ///
    /// # Panics
    /// Where the kernel gives an unprivileged user no mount namespace; otherwise as `start` does.
    pub fn start_on_small_disk(options: &TarnOptions, bytes: u64) -> Tarn {
        let mut tarn = Tarn::unformatted(options);
        tarn.options.properties.push(("metadata.log.dir".to_string(), tarn.metadata().display().to_string()));
        tarn.start_on_disk(bytes)
    }

    /// The same with the metadata log on that disk too.
    ///
    /// # Panics
    /// As `start_on_small_disk` does.
    pub fn start_wholly_on_small_disk(options: &TarnOptions, bytes: u64) -> Tarn {
        Tarn::unformatted(options).start_on_disk(bytes)
    }

    fn start_on_disk(self, bytes: u64) -> Tarn {
        let mut tarn = self;
        tarn.disk = Some(SmallDisk { of: OnDisk::Logs, bytes });
        tarn.write_config();
        fs::create_dir(tarn.data()).expect("the temporary directory is writable");
        tarn.start_again();
        tarn
    }

    /// `start`, with an export directory on a disk in memory that holds so many bytes and is gone with the process.
    ///
    /// # Panics
    /// As `start_on_small_disk` does.
    pub fn start_with_small_exports(options: &TarnOptions, bytes: u64) -> Tarn {
        let mut tarn = Tarn::unformatted(options);
        tarn.disk = Some(SmallDisk { of: OnDisk::Exports, bytes });
        let exports = tarn.exports();
        fs::create_dir(&exports).expect("the temporary directory is writable");
        tarn.options.properties.push(("tarn.mirror.export.dir".to_string(), exports.display().to_string()));
        tarn.write_config();
        tarn.format();
        tarn.start_again();
        tarn
    }

    /// The log directory as it is seen from outside the server's mount namespace.
    ///
    /// # Panics
    /// Where it does not run.
    pub fn data_from_outside(&self) -> PathBuf {
        self.seen_from_outside(&self.data())
    }

    /// The same of the export directory that is on a disk of its own.
    ///
    /// # Panics
    /// Where it does not run.
    pub fn exports_from_outside(&self) -> PathBuf {
        self.seen_from_outside(&self.exports())
    }

    /// This node's directory in an export directory that it was given.
    pub fn in_exports(&self, given: &Path) -> PathBuf {
        given.join(self.cluster_id()).join(NODE_ID)
    }

    /// Mounts the disk of the export directory anew, `ro` or `rw`.
    ///
    /// # Panics
    /// Where the kernel refuses.
    pub fn remount_exports(&self, how: &str) {
        let mut command = guarded("nsenter");
        command.args(["--user", "--preserve-credentials", "--mount", "--target", &self.id().to_string()]);
        command.args(["mount", "-o", &format!("remount,{how}")]).arg(self.exports());
        run("nsenter", command, None, COMMAND).ok();
    }

    fn seen_from_outside(&self, directory: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.id(), directory.display()))
    }

    /// A cluster that another one can mirror.
    ///
    /// # Panics
    /// As `start` does.
    pub fn start_source() -> Tarn {
        Tarn::start(&TarnOptions { cluster_id: Some(SOURCE_CLUSTER_ID), ..TarnOptions::default() })
    }

    /// Formats a directory and starts nothing.
    ///
    /// # Panics
    /// Where formatting fails.
    pub fn formatted(options: &TarnOptions) -> Tarn {
        let tarn = Tarn::unformatted(options);
        tarn.format();
        tarn
    }

    fn format(&self) {
        self.command(&["format", "-t", self.cluster_id(), "-c", &self.config().display().to_string()]).ok();
    }

    /// A cluster with another id and all the files of this one, which does not run: the same topics with
    /// the same ids and records. It is not started.
    ///
    /// # Panics
    /// Where the files cannot be copied.
    pub fn copied_as(&self, cluster_id: &str) -> Tarn {
        assert!(self.process.is_none(), "tarn runs");
        let copy = Tarn::unformatted(&self.options);
        copy_directory(&self.data(), &copy.data());
        let file = copy.data().join("meta.properties");
        let text = fs::read_to_string(&file).expect("it was formatted");
        fs::write(&file, text.replace(self.cluster_id(), cluster_id)).expect("the copy is ours");
        copy
    }

    /// Writes `server.properties` and nothing else.
    ///
    /// # Panics
    /// Where the temporary directory is not writable.
    pub fn unformatted(options: &TarnOptions) -> Tarn {
        let tarn = Tarn {
            port: free_port(),
            controller_port: free_port(),
            directory: TempDir::with_prefix("tarn-").expect("the temporary directory is writable"),
            options: options.clone(),
            environment: Vec::new(),
            disk: None,
            process: None,
        };
        tarn.write_config();
        tarn
    }

    /// The address of its listener for clients.
    pub fn bootstrap(&self) -> String {
        local(self.port)
    }

    /// The address of its controller listener.
    pub fn controller(&self) -> String {
        local(self.controller_port)
    }

    /// Its log directory.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Its `server.properties`.
    pub fn config(&self) -> PathBuf {
        self.directory.path().join("server.properties")
    }

    /// Uses other cores from the next start on.
    ///
    /// # Panics
    /// Where the temporary directory is not writable.
    pub fn reconfigure(&mut self, options: &TarnOptions) {
        self.options = options.clone();
        self.write_config();
    }

    /// Starts it after a stop or a kill, and waits until it answers and leads its partitions.
    ///
    /// # Panics
    /// Where it does not in 30 seconds.
    pub fn start_again(&mut self) {
        self.spawn();
        self.await_service();
    }

    fn await_service(&mut self) {
        let address = self.bootstrap();
        until_some("tarn to serve", READY, || {
            assert!(self.running().ended().is_none(), "tarn ended at its start");
            let mut cluster = Cluster::try_connect(&address)?;
            let topics = cluster.try_topics()?;
            let leaderless = topics.iter().flat_map(|topic| &topic.partitions).any(|one| one.leader < 0);
            if leaderless || !cluster.knows_node(1) {
                return Err("it has no leaders yet".into());
            }
            // After a crash it recovers its logs while it serves.
            let mut partitions =
                topics.iter().flat_map(|topic| topic.partitions.iter().map(move |one| (topic, one)));
            partitions.try_for_each(|(topic, one)| cluster.try_offsets(topic, one).map(drop))
        });
    }

    /// `start_again`, with these variables in the server's environment.
    ///
    /// # Panics
    /// As `start_again` does.
    pub fn start_again_with(&mut self, environment: &[(&str, &str)]) {
        self.spawn_with(environment);
        self.await_service();
    }

    /// `spawn`, with these variables in the server's environment.
    ///
    /// # Panics
    /// Where it runs already.
    pub fn spawn_with(&mut self, environment: &[(&str, &str)]) {
        self.environment =
            environment.iter().map(|(name, value)| ((*name).to_string(), (*value).to_string())).collect();
        self.spawn();
        self.environment.clear();
    }

    /// Starts the server without waiting for anything.
    ///
    /// # Panics
    /// Where it runs already.
    pub fn spawn(&mut self) {
        assert!(self.process.is_none(), "tarn runs already");
        let mut command = match self.disk {
            None => guarded(tarn_binary()),
            Some(disk) => self.on_small_disk(disk),
        };
        command.arg("server").arg(self.config()).envs(self.environment.iter().cloned());
        self.process = Some(Process::spawn("tarn", command, &self.log_file()));
    }

    /// A clean stop. Its exit code must be 0.
    ///
    /// # Panics
    /// Where it has not stopped in 30 seconds, or with another exit code.
    pub fn stop(&mut self) {
        let mut process = self.process.take().expect("tarn runs");
        let status = process.terminate(STOPPED);
        assert!(status.success(), "tarn ended with {status}: {}", process.output());
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// What the server printed, over all its starts.
    pub fn output(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// The server's process id.
    ///
    /// # Panics
    /// Where it does not run.
    pub fn id(&self) -> u32 {
        self.process.as_ref().expect("tarn runs").id()
    }

    /// The processor time that the server has used, user and system.
    ///
    /// # Panics
    /// Where it does not run.
    pub fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).expect("tarn runs");
        // What follows the command's name, which may hold anything.
        let after = stat.rsplit(')').next().expect("its name is in parentheses");
        let ticks: u64 = after
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|number| number.parse::<u64>().expect("a number of clock ticks"))
            .sum();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }

    /// Whether the server process is alive.
    pub fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.ended().is_none())
    }

    /// Runs `tarn ARGUMENTS`.
    ///
    /// # Panics
    /// Where it does not end in a minute.
    pub fn command(&self, arguments: &[&str]) -> Finished {
        let mut command = guarded(tarn_binary());
        command.args(arguments);
        run(&format!("tarn {}", arguments.join(" ")), command, None, COMMAND)
    }

    /// Runs `tarn mirror VERB --bootstrap-server …` with further arguments.
    ///
    /// # Panics
    /// Where it does not end in a minute.
    pub fn mirror(&self, verb: &str, arguments: &[&str]) -> Finished {
        let bootstrap = self.bootstrap();
        let first = ["mirror", verb, "--bootstrap-server", &bootstrap];
        self.command(&[&first[..], arguments].concat())
    }

    /// Creates a topic.
    ///
    /// # Panics
    /// Where that fails.
    pub fn create_topic(&self, topic: &str, partitions: i32) {
        let (bootstrap, partitions) = (self.bootstrap(), partitions.to_string());
        let first = ["topics", "create", "--bootstrap-server", &bootstrap];
        self.command(&[&first[..], &["--topic", topic, "--partitions", &partitions]].concat()).ok();
    }

    /// The high watermark of partition 0 of a topic.
    pub fn high_watermark(&self, topic: &str) -> i64 {
        let mut cluster = Cluster::connect(&self.bootstrap());
        let topic = cluster.topic(topic);
        cluster.offsets(&topic, &topic.partitions[0]).high_watermark
    }

    /// Waits until partition 0 of a topic is FAILED for this reason, and returns what is said of it.
    ///
    /// # Panics
    /// Where it is not in a minute.
    pub fn await_failed(&self, mirror: &str, topic: &str, reason: &str) -> String {
        let shown = self.await_shown(mirror, topic, &format!("FAILED for {reason}"), |shown| {
            shown.state == "FAILED" && shown.reason_code.as_deref() == Some(reason)
        });
        shown.error_message.unwrap_or_default()
    }

    /// Waits until partition 0 of a topic is MIRRORING, and returns what is shown of it.
    ///
    /// # Panics
    /// Where it is not in a minute.
    pub fn await_mirroring(&self, mirror: &str, topic: &str) -> MirrorPartition {
        self.await_shown(mirror, topic, "MIRRORING", |shown| shown.state == "MIRRORING")
    }

    fn await_shown(
        &self,
        mirror: &str,
        topic: &str,
        what: &str,
        is: impl Fn(&MirrorPartition) -> bool,
    ) -> MirrorPartition {
        until_some(&format!("{topic} to be {what}"), SHOWN, || {
            let all = self.describe_mirror(mirror);
            match all.into_iter().find(|one| one.topic == topic && one.partition == 0) {
                Some(shown) if is(&shown) => Ok(shown),
                other => Err(format!("{other:?}")),
            }
        })
    }

    /// Runs `tarn mirror create` with these lines in its `--mirror-config`.
    ///
    /// # Panics
    /// Where it does not end in a minute.
    pub fn create_mirror(&self, name: &str, configs: &[(&str, &str)]) -> Finished {
        let file = self.directory.path().join(format!("{name}.mirror.properties"));
        let lines: String = configs.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        fs::write(&file, lines).expect("the temporary directory is writable");
        self.mirror("create", &["--mirror", name, "--mirror-config", &file.display().to_string()])
    }

    /// Creates a mirror of the cluster at `source` and starts the topics that match.
    ///
    /// # Panics
    /// Where either fails.
    pub fn mirror_from(&self, source: &str, name: &str, topics: &str) {
        self.create_mirror(name, &[("bootstrap.servers", source), ("fetch.wait.max.ms", "500")]).ok();
        self.mirror("start", &["--mirror", name, "--topics", topics]).ok();
    }

    /// What `tarn mirror describe --json` says of one mirror.
    ///
    /// # Panics
    /// Where it fails or prints no JSON.
    pub fn describe_mirror(&self, name: &str) -> Vec<MirrorPartition> {
        let json = self.mirror("describe", &["--mirror", name, "--json"]).ok();
        let lines: Vec<Value> =
            serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error} in {json}"));
        lines.iter().map(mirror_partition).collect()
    }

    /// The command that runs `tarn` with what follows, in a mount namespace with an empty disk, which is formatted where
    /// the logs are on it.
    fn on_small_disk(&self, disk: SmallDisk) -> Command {
        let SmallDisk { of, bytes } = disk;
        let (tarn, config) = (tarn_binary(), self.config());
        let (tarn, config) = (tarn.display(), config.display());
        let (at, format) = match of {
            OnDisk::Logs => {
                (self.data(), format!("'{tarn}' format -t {} -c '{config}' && ", self.cluster_id()))
            }
            OnDisk::Exports => (self.exports(), String::new()),
        };
        // The change of user takes the kernel's promise to end it with the test away, so that it is asked for again.
        let script = format!(
            "mount -t tmpfs -o size={bytes} tmpfs '{}' && {format}exec setpriv --pdeathsig KILL -- '{tarn}' \"$@\"",
            at.display()
        );
        let mut command = guarded("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", &script, "tarn"]);
        command
    }

    fn exports(&self) -> PathBuf {
        self.directory.path().join("exports")
    }

    fn cluster_id(&self) -> &'static str {
        self.options.cluster_id.unwrap_or(CLUSTER_ID)
    }

    fn metadata(&self) -> PathBuf {
        self.directory.path().join("metadata")
    }

    fn write_config(&self) {
        let listeners =
            format!("PLAINTEXT://{},CONTROLLER://{}", self.bootstrap(), local(self.controller_port));
        let mut lines: Vec<(String, String)> = [
            ("process.roles", "broker,controller".to_string()),
            ("node.id", NODE_ID.to_string()),
            ("controller.quorum.voters", format!("1@{}", local(self.controller_port))),
            ("listeners", listeners.clone()),
            ("advertised.listeners", listeners),
            ("controller.listener.names", "CONTROLLER".to_string()),
            ("log.dirs", self.data().display().to_string()),
            ("mirror.state.topic.num.partitions", "4".to_string()),
            ("mirror.metadata.refresh.interval.ms", "1000".to_string()),
            ("mirror.failed.retry.initial.backoff.ms", "100".to_string()),
            ("mirror.failed.retry.max.backoff.ms", "1000".to_string()),
        ]
        .map(|(key, value)| (key.to_string(), value))
        .into();
        for (key, cores) in
            [("tarn.cores", self.options.cores), ("tarn.mirror.cores", self.options.mirror_cores)]
        {
            lines.extend(cores.map(|cores| (key.to_string(), cores.to_string())));
        }
        lines.extend(self.options.properties.iter().cloned());
        let text: String = lines.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        fs::write(self.config(), text).expect("the temporary directory is writable");
    }

    fn running(&mut self) -> &mut Process {
        self.process.as_mut().expect("tarn runs")
    }

    fn log_file(&self) -> PathBuf {
        Path::new(self.directory.path()).join("tarn.log")
    }
}

fn mirror_partition(line: &Value) -> MirrorPartition {
    let text = |key: &str| line[key].as_str().map(str::to_string);
    MirrorPartition {
        topic: text("topic").unwrap_or_else(|| panic!("no topic in {line}")),
        partition: line["partition"].as_i64().unwrap_or_else(|| panic!("no partition in {line}")),
        state: text("state").unwrap_or_else(|| panic!("no state in {line}")),
        lag: line["lag"].as_i64().filter(|lag| *lag >= 0),
        reason_code: text("reasonCode").filter(|code| !code.is_empty()),
        error_message: text("errorMessage").filter(|message| !message.is_empty()),
        last_fetch_age_ms: line["lastFetchAgeMs"].as_i64(),
    }
}
