//! Each search has a process of its own, so that one that aborts, overflows its stack or never ends can be told too.
//!
//! A test starts its own binary again for itself alone. That child writes each input down before it tries it; where the
//! child dies, or is ended because an input goes on and on, the parent finds there which input it was.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, exit};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use crate::engine::{Fault, Tally, Target};

/// Where a child is to write down what it tries. Who finds it set is a child.
const DIARY: &str = "TARN_FUZZ_DIARY";

/// How many seconds of CPU an input may take before the child gives up.
const PATIENCE: &str = "TARN_FUZZ_PATIENCE_S";
const PATIENCE_S: u64 = 20;

/// Waiting without using the CPU may take so many times as long.
const IDLE_PATIENCE: u32 = 20;

/// What a child exits with that has given up.
const GAVE_UP: i32 = 86;

/// The seed where none is given.
const SEED: u64 = 1;

/// How far a search goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// What each target asks for.
    Short,
    /// So many times that, with another seed.
    Long(u64),
}

/// Counts inputs, for the thread that watches.
static TRIED: AtomicU64 = AtomicU64::new(0);

/// Searches all targets in a process of its own. `test` is the name of the test that calls.
pub(crate) fn search(test: &str, length: Length, targets: fn() -> Vec<Target>) {
    if env::var_os(DIARY).is_some() {
        search_here(test, length, targets());
        return;
    }
    match search_in_child(test, length, PATIENCE_S) {
        Ok(told) => eprint!("{told}"),
        Err(fault) => panic!("{fault}"),
    }
}

/// Demands that a search finds the fault that says `what`.
pub(crate) fn must_be_found(test: &str, what: &str, targets: fn() -> Vec<Target>) {
    if env::var_os(DIARY).is_some() {
        search_here(test, Length::Short, targets());
        return;
    }
    let fault = search_in_child(test, Length::Short, 1).expect_err("no input finds it");
    assert!(fault.contains(what), "{what:?} was found as {fault}");
    eprintln!("{fault}");
}

fn search_in_child(test: &str, length: Length, patience_s: u64) -> Result<String, String> {
    let diary = tempfile::NamedTempFile::new().expect("there is room for a file");
    let binary = env::current_exe().expect("the test knows its binary");
    let Output { status, stderr, .. } = Command::new(binary)
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(DIARY, diary.path())
        .env(PATIENCE, patience_s.to_string())
        .output()
        .expect("the binary that runs can be started");
    let told = String::from_utf8_lossy(&stderr).into_owned();
    match status.code() {
        Some(0) => Ok(told),
        Some(101) => Err(told),
        code => {
            let what = match code {
                Some(GAVE_UP) => "it does not end".to_owned(),
                _ => format!("the process ended with {status}"),
            };
            let entry =
                Entry::read(diary.path()).ok_or_else(|| format!("{told}\n{what}, before any input"))?;
            let fault = Fault { what, input: entry.input, number: entry.number };
            Err(format!("{told}\n{}", report(test, &entry.target, &fault, length)))
        }
    }
}

fn search_here(test: &str, length: Length, targets: Vec<Target>) {
    let diary = env::var_os(DIARY).expect("a child has a diary");
    let diary = File::options().write(true).open(diary).expect("the parent has made the file");
    watch();
    let wanted = env::var("TARGET").unwrap_or_default();
    let targets: Vec<Target> = targets.into_iter().filter(|target| target.name.contains(&wanted)).collect();
    if let Some(file) = env::var_os("INPUT") {
        return replay(test, &targets, Path::new(&file), &diary);
    }
    let (seed, count) = (seed(length), from_environment("COUNT"));
    let (mut all, began) = (Tally::default(), Instant::now());
    for target in &targets {
        let inputs = count.unwrap_or(match length {
            Length::Short => target.inputs,
            Length::Long(times) => target.inputs * times,
        });
        let stored = corpus(&target.name).into_iter().map(|(_, input)| input).collect();
        let mut note = |number, input: &[u8]| Entry::write(&diary, &target.name, number, input);
        let began = Instant::now();
        let tally = target
            .search(stored, seed, inputs, &mut note)
            .unwrap_or_else(|fault| panic!("{}", report(test, &target.name, &fault, length)));
        say(&target.name, &tally, began.elapsed());
        all.inputs += tally.inputs;
    }
    eprintln!(
        "{test}: {} targets, {} inputs, seed {seed}, {:.1?}",
        targets.len(),
        all.inputs,
        began.elapsed()
    );
}

fn say(name: &str, tally: &Tally, took: Duration) {
    let Tally { inputs, answers, most, most_per_byte, slowest } = tally;
    let (peak, largest) = (most.peak, most.largest);
    eprintln!(
        "{name:<48} {inputs:>8} inputs {answers:>5} answers {took:>8.1?}  slowest {slowest:>8.1?}  at most {peak} bytes, \
         {largest} at once, {most_per_byte} a byte"
    );
}

/// One input that a run has kept.
fn replay(test: &str, targets: &[Target], file: &Path, diary: &File) {
    let [target] = targets else { panic!("INPUT needs the one TARGET it is for, of {} here", targets.len()) };
    let input = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    Entry::write(diary, &target.name, 0, &input);
    let mut tally = Tally::default();
    let said = target.try_one(&input, &mut tally);
    let said = said.unwrap_or_else(|what| panic!("{test}: {}: {what}", target.name));
    eprintln!("{}: {said:?}, {:?}, {:?}", target.name, tally.most, tally.slowest);
}

/// The fault, where its input is kept, and how to see it again.
fn report(test: &str, target: &str, fault: &Fault, length: Length) -> String {
    let Fault { what, input, number } = fault;
    let seed = seed(length);
    // Without it the tests that take long are not run.
    let long = if length == Length::Short { "" } else { " --long" };
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    let file = folder.join(format!("{target}-{:08x}", crc32c::crc32c(input)));
    let kept = fs::create_dir_all(&folder).and_then(|()| fs::write(&file, input));
    let file =
        kept.map_or_else(|error| format!("{} ({error})", file.display()), |()| file.display().to_string());
    format!(
        "{test}: {target}: {what}\ninput {number} of seed {seed}, {} bytes, kept in {file}\n\
         replay: TARGET={target} INPUT={file} tests/run.sh fuzz::{test}{long}\n\
         or all before it: TARGET={target} SEED={seed} COUNT={number} tests/run.sh fuzz::{test}{long}",
        input.len(),
    )
}

/// What a child wrote last.
struct Entry {
    target: String,
    number: u64,
    input: Vec<u8>,
}

impl Entry {
    fn write(diary: &File, target: &str, number: u64, input: &[u8]) {
        let mut entry = Vec::with_capacity(16 + target.len() + input.len());
        entry.extend_from_slice(&number.to_be_bytes());
        entry.extend_from_slice(&(target.len() as u32).to_be_bytes());
        entry.extend_from_slice(&(input.len() as u32).to_be_bytes());
        entry.extend_from_slice(target.as_bytes());
        entry.extend_from_slice(input);
        diary.write_all_at(&entry, 0).expect("there is room for an input");
        TRIED.fetch_add(1, Ordering::Relaxed);
    }

    fn read(diary: &Path) -> Option<Entry> {
        let bytes = fs::read(diary).ok()?;
        let (number, rest) = bytes.split_first_chunk()?;
        let (target_bytes, rest) = rest.split_first_chunk()?;
        let (input_bytes, rest) = rest.split_first_chunk()?;
        let (target, rest) = rest.split_at_checked(u32::from_be_bytes(*target_bytes) as usize)?;
        let input = rest.get(..u32::from_be_bytes(*input_bytes) as usize)?;
        let target = String::from_utf8_lossy(target).into_owned();
        Some(Entry { target, number: u64::from_be_bytes(*number), input: input.to_vec() })
    }
}

/// Ends this process once an input takes too long, by the CPU it uses: others may need the machine too.
fn watch() {
    let patience = Duration::from_secs(from_environment(PATIENCE).unwrap_or(PATIENCE_S));
    thread::spawn(move || {
        let mut seen = (TRIED.load(Ordering::Relaxed), cpu_time(), Instant::now());
        loop {
            thread::park_timeout(patience / 10);
            let tried = TRIED.load(Ordering::Relaxed);
            if tried != seen.0 {
                seen = (tried, cpu_time(), Instant::now());
            } else if cpu_time() - seen.1 > patience || seen.2.elapsed() > patience * IDLE_PATIENCE {
                exit(GAVE_UP);
            }
        }
    });
}

/// The CPU time that this process has used, to a hundredth of a second.
fn cpu_time() -> Duration {
    const TICK_MS: u64 = 10;
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, in parentheses, may have blanks in it.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * TICK_MS)
}

/// The inputs that are kept for a target, by name: those that once found a fault, and some that others wrote.
pub(crate) fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let Ok(files) = fs::read_dir(corpus_root().join(target)) else { return Vec::new() };
    let mut inputs: Vec<_> = files
        .map(|file| {
            let file = file.expect("the tree is readable");
            let input = fs::read(file.path()).expect("the tree is readable");
            (file.file_name().to_string_lossy().into_owned(), input)
        })
        .collect();
    inputs.sort();
    inputs
}

/// Where they are.
pub(crate) fn corpus_root() -> PathBuf {
    tarn_tests::kit_files::source_root().join("tests/fuzz/corpus")
}

fn seed(length: Length) -> u64 {
    let default = if length == Length::Short { SEED } else { SEED + 1 };
    from_environment("SEED").unwrap_or(default)
}

fn from_environment(key: &str) -> Option<u64> {
    let value = env::var(key).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{key} is not a number: {value}")))
}
