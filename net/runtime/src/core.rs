//! One core: a thread with its executor, pinned or not.
//!
//! The thread owns everything that its tasks own. It ends when the future it was given returns. It
//! never ends by panic: a core that dies takes the process with it (W4), because the partitions it
//! owns would otherwise be silently gone.

use crate::panics::Panic;
use crate::{blocking, executor, machine, queues, timer};
use std::fmt;
use std::future::Future;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The number of a core among those of the process, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId(pub u16);

impl fmt::Display for CoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a core runs and what its thread is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreSpec {
    /// The CPU it is pinned to; several cores may share one. `None` leaves it to the kernel.
    pub cpu: Option<usize>,
    /// The thread's name; the kernel shows its first 15 bytes.
    pub name: String,
}

/// A running core. Dropping the handle leaves it running.
#[derive(Debug)]
pub struct CoreHandle<T> {
    thread: thread::JoinHandle<Option<T>>,
}

impl<T> CoreHandle<T> {
    /// Waits for the core to end. Not to be called on a core.
    pub fn join(self) -> T {
        assert!(!queues::on_core(), "a core may not wait for another by blocking");
        let ended = self.thread.join();
        ended.ok().flatten().expect("a core that does not return takes the process down")
    }
}

/// How a core spent its time since it was last asked, or since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreUsage {
    /// Time in which tasks ran.
    pub busy: Duration,
    /// Time in which it did not sleep: tasks, and what the executor needs around them.
    pub awake: Duration,
    /// How often a task was run.
    pub runs: u64,
}

/// How the core of this thread spent its time, for its metrics. Asking begins anew, so one task asks.
///
/// # Panics
/// On a thread that is not a core.
pub fn take_usage() -> CoreUsage {
    executor::take_usage().expect("only a core can tell how it spent its time")
}

/// Starts a core. `make` is called on its thread and gives the future to run there, in the network
/// queue. When that returns, the core waits for its blocking lanes and ends.
///
/// # Errors
/// When the thread cannot be started or pinned, or its rings cannot be set up.
pub fn spawn_core<Make, Main, T>(spec: CoreSpec, make: Make) -> io::Result<CoreHandle<T>>
where
    Make: FnOnce() -> Main + Send + 'static,
    Main: Future<Output = T> + 'static,
    T: Send + 'static,
{
    machine::remember_affinity();
    let (started, start) = mpsc::sync_channel(1);
    let thread = thread::Builder::new().name(spec.name.clone()).spawn(move || {
        if let Err(error) = build(&spec) {
            started.send(Err(error)).ok();
            return None;
        }
        started.send(Ok(())).ok();
        Some(run_to_end(&spec.name, make))
    })?;
    start.recv().unwrap_or_else(|_| Err(io::Error::other("the core's thread ended before it began")))?;
    Ok(CoreHandle { thread })
}

fn build(spec: &CoreSpec) -> io::Result<()> {
    if let Some(cpu) = spec.cpu {
        machine::pin_this_thread(cpu)?;
    }
    executor::install()?;
    timer::install();
    blocking::install(spec.name.clone());
    Ok(())
}

fn run_to_end<Make, Main, T>(name: &str, make: Make) -> T
where
    Make: FnOnce() -> Main + 'static,
    Main: Future<Output = T> + 'static,
    T: 'static,
{
    let outcome = catch_unwind(AssertUnwindSafe(move || {
        let output = executor::run(async move { make().await });
        blocking::finish();
        executor::uninstall();
        timer::uninstall();
        output
    }));
    outcome.unwrap_or_else(|payload| die(name, &Panic::from_payload(payload)))
}

/// Ends the process. The panic hook has told where; this line is the last word on stderr.
fn die(core: &str, panic: &Panic) -> ! {
    let line = format!("tarn: core {core} {panic}; the process stops, because a core cannot be replaced\n");
    io::stderr().write_all(line.as_bytes()).ok();
    std::process::abort();
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::channel::{mailbox, reply};
    use crate::socket::Listener;
    use crate::{Queue, catch_panics, sleep, spawn, yield_if_needed, yield_now};
    use std::cell::Cell;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Output};
    use std::rc::Rc;
    use std::time::Instant;

    /// An executor that only looks at its mailbox when its preempt timer says so answers after 100 ms.
    const PROMPT: Duration = Duration::from_millis(40);

    #[test]
    fn a_parked_core_answers_a_plain_thread_promptly() {
        assert_prompt("parked, asked by a thread", None, Rounds::FromThread);
    }

    #[test]
    fn a_parked_core_answers_another_core_promptly() {
        assert_prompt("parked, asked by a core", None, Rounds::FromCore);
    }

    #[test]
    fn a_core_busy_in_the_background_answers_promptly() {
        assert_prompt("busy, asked by a thread", Some(Queue::Background), Rounds::FromThread);
        assert_prompt("busy, asked by a core", Some(Queue::Background), Rounds::FromCore);
    }

    enum Rounds {
        FromThread,
        FromCore,
    }

    /// The median of some round trips to a core that runs a task that never waits, or none.
    fn assert_prompt(what: &str, busy: Option<Queue>, rounds: Rounds) {
        let (questions, mut inbox) = mailbox::<crate::channel::ReplySlot<()>>(16);
        let answering = core_of(None, move || async move {
            let _busy = busy.map(|queue| {
                spawn(queue, async {
                    loop {
                        yield_if_needed().await;
                    }
                })
            });
            while let Some(slot) = inbox.recv().await {
                slot.fill(()).ok();
            }
        });
        let mut times = match rounds {
            Rounds::FromThread => futures_lite::future::block_on(round_trips(questions)),
            Rounds::FromCore => core_of(None, move || round_trips(questions)).join(),
        };
        answering.join();
        times.sort();
        let median = times[times.len() / 2];
        assert!(median < PROMPT, "{what}: {median:?}");
    }

    async fn round_trips(questions: crate::channel::Sender<crate::channel::ReplySlot<()>>) -> Vec<Duration> {
        let mut times = Vec::new();
        for _ in 0..30 {
            let begun = Instant::now();
            let (slot, answer) = reply();
            questions.send(slot).await.unwrap();
            answer.await.unwrap();
            times.push(begun.elapsed());
        }
        times
    }

    #[test]
    fn several_cores_may_share_a_cpu() {
        let cpu = *machine::available_cpus().unwrap().last().unwrap();
        let cores = [1, 2, 3].map(|n| {
            core_of(Some(cpu), move || async move {
                sleep(Duration::from_millis(1)).await;
                (n, rustix::thread::sched_getcpu())
            })
        });
        assert_eq!(cores.map(CoreHandle::join), [(1, cpu), (2, cpu), (3, cpu)]);
    }

    #[test]
    fn a_core_without_a_cpu_is_not_pinned() {
        let cpus = run_on_core(|| async { rustix::thread::sched_getaffinity(None).unwrap().count() });
        assert_eq!(cpus as usize, machine::available_cpus().unwrap().len());
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error_not_a_panic() {
        let spec = CoreSpec { cpu: Some(1000), name: "nowhere".to_owned() };
        let refused = spawn_core(spec, || async {}).unwrap_err();
        assert!(refused.to_string().contains("CPU 1000"), "{refused}");
    }

    #[test]
    fn a_task_that_panics_inside_catch_panics_costs_only_itself() {
        run_on_core(|| async {
            let connection = spawn(Queue::Network, catch_panics(async { panic!("bad frame") }));
            assert_eq!(connection.await.unwrap_err().message, "bad frame");
            assert_eq!(spawn(Queue::Network, async { 7 }).await, 7);
        });
    }

    #[test]
    fn a_core_that_panics_takes_the_process_down_and_says_why() {
        if is_child("doomed") {
            let spec = CoreSpec { cpu: None, name: "core-3".to_owned() };
            let core = spawn_core(spec, || async {
                spawn(Queue::Background, async { panic!("index out of range") }).detach();
                sleep(Duration::from_secs(60)).await;
            });
            core.unwrap().join();
            return;
        }
        let ended = child("core::tests::a_core_that_panics_takes_the_process_down_and_says_why", "doomed");
        assert_eq!(ended.status.signal(), Some(libc::SIGABRT));
        let said = String::from_utf8(ended.stderr).unwrap();
        let last = said.lines().last().unwrap();
        assert!(
            last.starts_with("tarn: core core-3 panicked: index out of range; the process stops"),
            "{said}"
        );
    }

    #[test]
    fn a_dropped_task_is_cancelled_and_what_it_held_is_freed() {
        run_on_core(|| async {
            let held = Rc::new(Cell::new(0));
            let task = {
                let held = Rc::clone(&held);
                spawn(Queue::Background, async move {
                    sleep(Duration::from_secs(3600)).await;
                    held.set(1);
                })
            };
            yield_now().await;
            drop(task);
            sleep(Duration::from_millis(1)).await;
            assert_eq!((Rc::strong_count(&held), held.get()), (1, 0));
        });
    }

    /// W13: what its tasks hold is given back before the thread ends, in flight or not.
    #[test]
    fn a_core_that_ends_drops_the_tasks_it_held() {
        let (letters, mut inbox) = mailbox::<()>(1);
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), 8).unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        run_on_core(|| async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _receiving = spawn(Queue::Network, async move { socket.read(&mut [0; 8]).await });
            let _accepting = spawn(Queue::Network, async move { listener.accept().await.map(drop) });
            let _draining = spawn(Queue::Background, async move { inbox.recv().await });
            let _sleeping = spawn(Queue::Mirror, sleep(Duration::from_secs(3600)));
            sleep(Duration::from_millis(1)).await;
        });
        assert_eq!(std::io::Read::read(&mut client, &mut [0; 1]).unwrap(), 0, "the socket is closed");
        assert!(letters.is_closed(), "the receiver is gone");
    }

    /// W10: the executor's own choice would pin 30 MiB for each core.
    #[test]
    fn a_core_pins_little_memory() {
        let status = run_on_core(|| async { std::fs::read_to_string("/proc/self/status").unwrap() });
        let pinned = status.lines().find_map(|line| line.strip_prefix("VmPin:")).unwrap();
        let kib: u64 = pinned.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(kib < 10 << 10, "{kib} KiB are pinned");
    }

    #[test]
    fn usage_counts_work_and_begins_anew_when_asked() {
        run_on_core(|| async {
            sleep(Duration::from_millis(1)).await;
            let first = take_usage();
            assert!(first.runs > 0 && first.awake >= first.busy, "{first:?}");
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(10) {
                yield_now().await;
            }
            sleep(Duration::from_millis(1)).await;
            let worked = take_usage();
            assert!(worked.busy >= Duration::from_millis(1), "{worked:?}");
            assert!(take_usage().runs < worked.runs);
        });
    }

    #[test]
    fn blocking_calls_are_refused_on_a_core() {
        run_on_core(|| async {
            let (sender, mut receiver) = mailbox::<()>(1);
            let sent = catch_panics(async move { sender.send_blocking(()) }).await;
            assert!(sent.unwrap_err().message.contains("may not block"));
            let received = catch_panics(async move { receiver.recv_blocking() }).await;
            assert!(received.unwrap_err().message.contains("may not block"));
        });
    }

    /// Whether this process was started by [`child`] for `role`.
    pub(crate) fn is_child(role: &str) -> bool {
        std::env::var("TARN_TEST_ROLE").is_ok_and(|given| given == role)
    }

    /// Runs one test again in a process of its own, where it may do what would disturb others.
    pub(crate) fn child(test: &str, role: &str) -> Output {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env("TARN_TEST_ROLE", role)
            .output()
            .unwrap()
    }

    /// Runs a test's body on a core of its own, wherever the kernel likes.
    pub(crate) fn run_on_core<Make, Main, T>(make: Make) -> T
    where
        Make: FnOnce() -> Main + Send + 'static,
        Main: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        core_of(None, make).join()
    }

    /// Starts a core for a test.
    pub(crate) fn core_of<Make, Main, T>(cpu: Option<usize>, make: Make) -> CoreHandle<T>
    where
        Make: FnOnce() -> Main + Send + 'static,
        Main: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        spawn_core(CoreSpec { cpu, name: "test".to_owned() }, make).unwrap()
    }
}
