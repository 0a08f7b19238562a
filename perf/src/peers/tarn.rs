//! Tarn as the destination: one node, new for each copy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Copy, Setting, await_ready, free_port, properties};
use crate::backlog::{Backlog, Likeness, TOPIC};
use crate::failure::{Doing, Result};
use crate::measure::arrival::Arrival;
use crate::measure::cpu::{Processes, memory_peak_bytes};
use crate::program::{Program, guarded, run};

const CLUSTER_ID: &str = "VGFyblBlcmZDb3B5MDAwMQ";
const CONFIG: &str = "server.properties";
/// The mirror's name.
pub(crate) const MIRROR: &str = "perf";
const COMMAND_ENDS_IN: Duration = Duration::from_secs(120);

/// The Tarn that is measured.
#[derive(Clone, Debug)]
pub(crate) struct Build {
    /// The program.
    pub(crate) binary: PathBuf,
    /// Further lines of its `server.properties`.
    pub(crate) server: Vec<String>,
    /// Further lines of its mirror's configuration.
    pub(crate) mirror: Vec<String>,
}

/// A Tarn that runs.
#[derive(Debug)]
pub(crate) struct Tarn {
    program: Program,
    build: Build,
    bootstrap: String,
    directory: PathBuf,
}

impl Tarn {
    /// Formats a directory below `directory` and starts a node there.
    pub(crate) fn start(build: &Build, directory: &Path) -> Result<Tarn> {
        Tarn::start_behind(None, CLUSTER_ID, build, directory)
    }

    /// The same for a cluster of this id, which tells others that its address is the relay's. A directory may be
    /// started again later, on other ports.
    pub(crate) fn start_behind(
        relay: Option<&str>,
        cluster_id: &str,
        build: &Build,
        directory: &Path,
    ) -> Result<Tarn> {
        fs::create_dir_all(directory).doing(|| format!("making {}", directory.display()))?;
        let (config, data) = (directory.join(CONFIG), directory.join("data"));
        let bootstrap = format!("127.0.0.1:{}", free_port()?);
        let controller = format!("127.0.0.1:{}", free_port()?);
        let listeners = format!("PLAINTEXT://{bootstrap},CONTROLLER://{controller}");
        let advertised = format!("PLAINTEXT://{},CONTROLLER://{controller}", relay.unwrap_or(&bootstrap));
        let lines = [
            ("process.roles", "broker,controller".to_owned()),
            ("node.id", "1".to_owned()),
            ("controller.quorum.voters", format!("1@{controller}")),
            ("listeners", listeners),
            ("advertised.listeners", advertised),
            ("controller.listener.names", "CONTROLLER".to_owned()),
            ("log.dirs", data.display().to_string()),
        ];
        let text = properties(&lines, &build.server);
        fs::write(&config, text).doing(|| format!("writing {}", config.display()))?;
        if !data.exists() {
            let mut format = guarded(&build.binary);
            format.args(["format", "-t", cluster_id, "-c"]).arg(&config);
            run("format", format, directory, COMMAND_ENDS_IN)?;
        }
        Tarn::serve(build, bootstrap, directory)
    }

    fn serve(build: &Build, bootstrap: String, directory: &Path) -> Result<Tarn> {
        let mut server = guarded(&build.binary);
        server.arg("server").arg(directory.join(CONFIG));
        let mut program = Program::start("tarn", server, &directory.join("tarn.log"))?;
        await_ready(&mut program, &bootstrap)?;
        Ok(Tarn { program, build: build.clone(), bootstrap, directory: directory.to_owned() })
    }

    /// The address of its listener.
    pub(crate) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.program.id()
    }

    /// Fails where it has ended.
    pub(crate) fn expect_running(&mut self) -> Result<()> {
        self.program.expect_running()
    }

    /// Creates a mirror of the cluster at `source`, without topics yet.
    pub(crate) fn create_mirror(&self, source: &str) -> Result<()> {
        let config = self.directory.join("mirror.properties");
        let text = properties(&[("bootstrap.servers", source.to_owned())], &self.build.mirror);
        fs::write(&config, text).doing(|| format!("writing {}", config.display()))?;
        let mut create = self.mirror_command("create");
        create.arg("--mirror-config").arg(&config);
        run("mirror create", create, &self.directory, COMMAND_ENDS_IN).map(|_| ())
    }

    /// Begins to mirror a topic, or those that match a pattern.
    pub(crate) fn start_mirror(&self, topics: &str) -> Result<()> {
        let mut start = self.mirror_command("start");
        start.args(["--topics", topics]);
        run("mirror start", start, &self.directory, COMMAND_ENDS_IN).map(|_| ())
    }

    /// A clean stop.
    pub(crate) fn stop(self) -> Result<Stopped> {
        let Tarn { program, build, bootstrap, directory } = self;
        program.stop()?;
        Ok(Stopped { build, bootstrap, directory })
    }

    /// SIGKILL.
    pub(crate) fn kill(self) -> Stopped {
        let Tarn { program, build, bootstrap, directory } = self;
        drop(program);
        Stopped { build, bootstrap, directory }
    }

    fn mirror_command(&self, verb: &str) -> Command {
        let mut command = guarded(&self.build.binary);
        command.args(["mirror", verb, "--bootstrap-server", &self.bootstrap, "--mirror", MIRROR]);
        command
    }
}

/// A Tarn that does not run, and can.
#[derive(Debug)]
pub(crate) struct Stopped {
    build: Build,
    bootstrap: String,
    directory: PathBuf,
}

impl Stopped {
    /// Starts it as it was; returns when it serves.
    pub(crate) fn start(self) -> Result<Tarn> {
        Tarn::serve(&self.build, self.bootstrap, &self.directory)
    }
}

/// Copies the backlog to a new Tarn and checks it. Measured from `mirror start` to the last record.
pub(crate) fn copy(setting: &Setting<'_>, build: &Build, directory: &Path) -> Result<Copy> {
    let mut tarn = Tarn::start(build, directory)?;
    tarn.create_mirror(setting.source.bootstrap())?;
    let mut arrival = Arrival::at(tarn.bootstrap(), TOPIC, setting.backlog.ends())?;
    let (began, running) = (Instant::now(), Processes::new(&[tarn.id()], setting.source.id()).start());
    tarn.start_mirror(TOPIC)?;
    arrival.first(|| tarn.expect_running())?;
    let first_after_seconds = began.elapsed().as_secs_f64();
    arrival.last(|| tarn.expect_running())?;
    let cost = running.stop();
    let memory_peak_bytes = memory_peak_bytes(&tarn.id().to_string()) as f64;
    let copied = Backlog::read(tarn.bootstrap(), setting.backlog.partitions())?;
    setting.backlog.expect_copy(&copied, Likeness::Bytes)?;
    tarn.stop()?;
    Ok(Copy {
        bytes: setting.backlog.bytes() as f64,
        cost,
        first_after_seconds,
        whole_seconds: cost.seconds,
        memory_peak_bytes,
    })
}
