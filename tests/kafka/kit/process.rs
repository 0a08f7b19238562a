//! Programs that a test runs: started, signalled by process id, ended with the test.
//!
//! Each is started through `setpriv --pdeathsig KILL`, so that the kernel ends it when the thread that
//! started it does. That is a thread of its own which lives as long as the test process: libtest's
//! threads end with their test.
//!
//! Invariants:
//! * a `Process` that is dropped is dead and reaped;
//! * output goes to a file, never to a pipe that could fill.

use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// How much of a program's output a failing test prints.
const TAIL_BYTES: u64 = 3 * 1024;

/// A running program, or one that has ended.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    status: Option<ExitStatus>,
}

/// What a program that has ended said.
#[derive(Debug)]
pub struct Finished {
    /// Its exit code; `None` where a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// A command that the kernel ends with the thread that started it.
pub fn guarded(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig").arg("KILL").arg("--").arg(program).stdin(Stdio::null());
    command
}

impl Process {
    /// Starts `command`; both its outputs are appended to `log`.
    ///
    /// # Panics
    /// Where it cannot be started.
    pub fn spawn(name: &str, mut command: Command, log: &Path) -> Process {
        let output = OpenOptions::new().create(true).append(true).open(log).expect("the log file opens");
        command.stdout(output.try_clone().expect("a descriptor is left")).stderr(output);
        let child = guarded_child(command).unwrap_or_else(|error| panic!("{name}: {error}"));
        Process { name: name.to_string(), child, log: log.to_path_buf(), status: None }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, where it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("this is our child");
        }
        self.status
    }

    /// SIGTERM, and waits for the end.
    ///
    /// # Panics
    /// Where it is still there after `limit`.
    pub fn terminate(&mut self, limit: Duration) -> ExitStatus {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(Instant::now() < deadline, "{} has not ended {limit:?} after SIGTERM", self.name);
            sleep(Duration::from_millis(5));
        }
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.status = Some(self.child.wait().expect("this is our child"));
    }

    /// SIGSTOP: it stays, and does nothing.
    pub fn pause(&mut self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    /// All that it has printed so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() {
            let id = Pid::from_child(&self.child);
            kill_process(id, signal).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("---- the last lines of {} (process {}):\n{}", self.name, self.id(), tail(&self.log));
        }
        if self.ended().is_none() {
            // An error means that it has just ended.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Runs `command` to its end, with `stdin` if there is any.
///
/// # Panics
/// Where it cannot be started, or has not ended after `limit`.
pub fn run(name: &str, mut command: Command, stdin: Option<&[u8]>, limit: Duration) -> Finished {
    let (mut stdout, mut stderr) = (scratch_file(), scratch_file());
    if let Some(bytes) = stdin {
        let mut input = scratch_file();
        io::copy(&mut &bytes[..], &mut input).expect("the temporary directory has room");
        input.rewind().expect("a file seeks");
        command.stdin(input);
    }
    command.stdout(stdout.try_clone().expect("a descriptor is left"));
    command.stderr(stderr.try_clone().expect("a descriptor is left"));
    let mut child = guarded_child(command).unwrap_or_else(|error| panic!("{name}: {error}"));
    let deadline = Instant::now() + limit;
    let (status, late) = loop {
        if let Some(status) = child.try_wait().expect("this is our child") {
            break (status, false);
        }
        if Instant::now() >= deadline {
            let _ = child.kill();
            break (child.wait().expect("this is our child"), true);
        }
        sleep(Duration::from_millis(5));
    };
    let finished =
        Finished { code: status.code(), stdout: whole_text(&mut stdout), stderr: whole_text(&mut stderr) };
    assert!(!late, "{name} has not ended after {limit:?}, {}", finished.ends());
    finished
}

impl Finished {
    /// Standard output of a program that succeeded.
    ///
    /// # Panics
    /// Where it did not.
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.ends());
        self.stdout
    }

    /// Both outputs of a program that failed by its exit code.
    ///
    /// # Panics
    /// Where it succeeded, or a signal ended it.
    pub fn failed(self) -> String {
        assert!(self.code.is_some_and(|code| code != 0), "exit code {:?}, {}", self.code, self.ends());
        self.stdout + &self.stderr
    }

    /// The same of one that failed with this exit code.
    ///
    /// # Panics
    /// Where it ended otherwise.
    pub fn failed_with(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}", self.ends());
        self.failed()
    }

    /// The last of what it said.
    fn ends(&self) -> String {
        format!("stdout: {}\nstderr: {}", end_of(&self.stdout), end_of(&self.stderr))
    }
}

fn end_of(text: &str) -> &str {
    let from = text.len().saturating_sub(TAIL_BYTES as usize);
    let from = (from..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or_default();
    &text[from..]
}

fn scratch_file() -> File {
    tempfile::tempfile().expect("the temporary directory is writable")
}

fn whole_text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("a scratch file is readable");
    String::from_utf8_lossy(&bytes).into_owned()
}

fn tail(log: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let from = file.metadata()?.len().saturating_sub(TAIL_BYTES);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_or_else(|error| error.to_string(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

type Job = Box<dyn FnOnce() + Send>;

/// Starts a command of `guarded`, from the thread that lasts as long as the test process.
pub(crate) fn guarded_child(mut command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, jobs) = channel::<Job>();
        thread::spawn(move || jobs.into_iter().for_each(|job| job()));
        Mutex::new(sender)
    });
    let (answer, answered) = channel();
    let job: Job = Box::new(move || {
        // The receiver waits below.
        let _ = answer.send(command.spawn());
    });
    starter.lock().expect("no holder of this lock panics").send(job).expect("the starter never ends");
    answered.recv().expect("the starter answers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_process_is_gone() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut command = guarded("sleep");
        command.arg("60");
        let process = Process::spawn("sleep", command, log.path());
        let id = process.id();
        assert!(Path::new(&format!("/proc/{id}")).exists());
        drop(process);
        assert!(!Path::new(&format!("/proc/{id}")).exists());
    }

    #[test]
    fn a_process_outlives_the_thread_that_asked_for_it() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let path = log.path().to_path_buf();
        let asked = thread::spawn(move || {
            let mut command = guarded("sleep");
            command.arg("60");
            Process::spawn("sleep", command, &path)
        });
        let mut process = asked.join().unwrap();
        sleep(Duration::from_millis(50));
        assert_eq!(process.ended(), None);
        process.kill();
        assert!(process.ended().is_some_and(|status| status.code().is_none()));
    }

    #[test]
    fn a_finished_program_says_what_it_said() {
        let mut command = guarded("sh");
        command.args(["-c", "cat; echo no >&2; exit 3"]);
        let finished = run("sh", command, Some(b"in"), Duration::from_secs(10));
        assert_eq!((finished.code, &*finished.stdout, &*finished.stderr), (Some(3), "in", "no\n"));
    }
}
