//! `tools/quickstart.sh --check`, which a newcomer runs first: it verifies, and leaves nothing behind.

use std::fs;
use std::path::Path;
use std::time::Duration;
use tarn_tests::kit_files::{source_root, tarn_binary};
use tarn_tests::ports::free_port_pair;
use tarn_tests::process::{guarded, run};
use tarn_tests::tarn::{Tarn, TarnOptions};

const CHECKED: Duration = Duration::from_secs(300);

#[test]
fn a_check_verifies_the_copy_and_leaves_no_process_and_no_file() {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let [port, source_port] = [free_port_pair(), free_port_pair()].map(|port| port.to_string());
    let mut command = guarded("bash");
    command.arg(source_root().join("tools/quickstart.sh"));
    command.args(["--check", "--port", &port, "--source-port", &source_port]);
    command.env("TARN_BIN", tarn_binary()).env("TMPDIR", directory.path());
    let said = run("tools/quickstart.sh --check", command, None, CHECKED).ok();
    assert!(said.contains("127.0.0.1:") && said.contains("Verified."), "{said}");
    let left: Vec<_> = fs::read_dir(directory.path()).expect("it is ours").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(processes_about(directory.path()), Vec::<String>::new());
}

#[test]
fn ports_that_overlap_are_refused_before_anything_is_built() {
    for (port, source_port) in [("19192", "19192"), ("19193", "19192"), ("19192", "19193")] {
        let mut command = guarded("bash");
        command.arg(source_root().join("tools/quickstart.sh"));
        command.args(["--check", "--port", port, "--source-port", source_port]);
        let said = run("tools/quickstart.sh", command, None, CHECKED).failed_with(2);
        assert!(said.contains(&format!("--port {port} and --source-port {source_port} overlap")), "{said}");
    }
}

#[test]
fn topics_that_match_nothing_are_told() {
    let source = Tarn::start(&TarnOptions::default());
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let port = free_port_pair().to_string();
    let mut command = guarded("bash");
    command.arg(source_root().join("tools/quickstart.sh"));
    let source = source.bootstrap();
    command.args(["--check", "--port", &port, "--source", &source, "--topics", "no\\.such.*"]);
    command.env("TARN_BIN", tarn_binary()).env("TMPDIR", directory.path());
    let said = run("tools/quickstart.sh", command, None, CHECKED).failed_with(1);
    assert!(said.contains("matches 'no\\.such.*': nothing to mirror"), "{said}");
}

/// The command lines that name a path below `directory`.
fn processes_about(directory: &Path) -> Vec<String> {
    let named = directory.display().to_string();
    let processes = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    // A process may end while it is looked at.
    let commands = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    let commands = commands.map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "));
    commands.filter(|command| command.contains(&named)).collect()
}
