//! Programs that a measurement runs: started, watched and ended by process id.
//!
//! Invariants:
//! * a `Program` that is dropped is dead and reaped; the kernel ends it where the measurement itself dies;
//! * output goes to files, never to a pipe that could fill.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::failure::{Doing, Failure, Result};

/// How often a condition is looked at.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long a program may take to stop by itself, with very many files to sync on a busy disk.
const STOPPED_IN: Duration = Duration::from_secs(300);
/// How many lines of a failed program's output are shown.
const TAIL_LINES: usize = 15;

/// A command that the kernel ends with the thread that started it.
pub(crate) fn guarded(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig").arg("KILL").arg("--").arg(program).stdin(Stdio::null());
    command
}

/// A program that runs.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts a program; what it prints goes to `log`.
    pub(crate) fn start(name: &str, mut command: Command, log: &Path) -> Result<Program> {
        let start = || -> io::Result<Child> {
            let file = File::create(log)?;
            command.stdout(file.try_clone()?).stderr(file).spawn()
        };
        let child = { start }().doing(|| format!("starting {name}"))?;
        Ok(Program { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails where it has ended.
    pub(crate) fn expect_running(&mut self) -> Result<()> {
        match self.child.try_wait().doing(|| format!("looking at {}", self.name))? {
            None => Ok(()),
            Some(status) => Err(self.failed(format!("ended early ({status})"))),
        }
    }

    /// SIGTERM, then waits for its end; SIGKILL where that takes too long.
    pub(crate) fn stop(mut self) -> Result<()> {
        let deadline = Instant::now() + STOPPED_IN;
        // An error means that it has ended.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        while self.child.try_wait().doing(|| format!("stopping {}", self.name))?.is_none() {
            if Instant::now() > deadline {
                return Err(self.failed(format!("has not stopped in {STOPPED_IN:?}")));
            }
            sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn failed(&self, how: String) -> Failure {
        Failure::Program { program: self.name.clone(), how, tail: tail(&self.log) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Errors mean that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its successful end within `limit`; what it printed to standard output. `into` is a
/// directory for its output.
pub(crate) fn run(name: &str, mut command: Command, into: &Path, limit: Duration) -> Result<String> {
    let (out, err) = (into.join(format!("{name}.out")), into.join(format!("{name}.err")));
    let start =
        || -> io::Result<Child> { command.stdout(File::create(&out)?).stderr(File::create(&err)?).spawn() };
    let child = { start }().doing(|| format!("starting {name}"))?;
    let mut program = Program { name: name.to_owned(), child, log: err };
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = program.child.try_wait().doing(|| format!("looking at {name}"))? {
            break status;
        }
        if Instant::now() > deadline {
            return Err(program.failed(format!("has not ended in {limit:?}")));
        }
        sleep(LOOK_EVERY);
    };
    let printed = fs::read_to_string(&out).doing(|| format!("reading what {name} printed"))?;
    if status.success() {
        return Ok(printed);
    }
    let tail = format!("{}{}", last_lines(&printed), tail(&program.log));
    Err(Failure::Program { program: name.to_owned(), how: format!("failed ({status})"), tail })
}

/// Looks again and again until there is an answer.
pub(crate) fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = look()? {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            return Err(Failure::Late { what: what.to_owned(), limit });
        }
        sleep(LOOK_EVERY);
    }
}

fn tail(log: &Path) -> String {
    fs::read(log).map_or_else(|error| error.to_string(), |text| last_lines(&String::from_utf8_lossy(&text)))
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].iter().fold(String::new(), |all, line| all + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = guarded("sh");
        command.args(["-c", script]);
        command
    }

    /// A directory that is removed with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("tarn-perf-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_dropped_program_is_gone() {
        let scratch = Scratch::new("dropped");
        let program = Program::start("sleep", shell("exec sleep 60"), &scratch.0.join("log")).unwrap();
        let process = PathBuf::from(format!("/proc/{}", program.id()));
        assert!(process.exists());
        drop(program);
        assert!(!process.exists());
    }

    #[test]
    fn a_program_that_ended_is_told_with_its_last_words() {
        let scratch = Scratch::new("ended");
        let mut program =
            Program::start("words", shell("echo no room; exit 3"), &scratch.0.join("log")).unwrap();
        let told = until("its end", Duration::from_secs(10), || Ok(program.expect_running().err())).unwrap();
        let text = told.to_string();
        assert!(text.contains("ended early (exit status: 3)") && text.contains("no room"), "{text}");
    }

    #[test]
    fn a_run_gives_what_was_printed_or_why_it_failed() {
        let scratch = Scratch::new("run");
        let limit = Duration::from_secs(10);
        assert_eq!(run("good", shell("echo out; echo err >&2"), &scratch.0, limit).unwrap(), "out\n");
        let failed = run("bad", shell("echo out; echo err >&2; exit 1"), &scratch.0, limit).unwrap_err();
        assert!(failed.to_string().contains("out\nerr"), "{failed}");
        let late = run("slow", shell("exec sleep 60"), &scratch.0, Duration::from_millis(20)).unwrap_err();
        assert!(late.to_string().contains("has not ended in 20ms"), "{late}");
    }
}
