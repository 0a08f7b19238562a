//! Reads the source tree: the rules of the house that no compiler knows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use tarn_tests::kit_files::source_root;

/// The hard limit of lines in a file; a comfortable one has 150 to 400.
const LINES_MAX: usize = 800;

/// Names that say nothing about what is inside.
const VAGUE: [&str; 5] = ["utils", "common", "helpers", "types", "misc"];

/// Where unsafe code may be: around system calls, and in the allocator that measures one test.
const WITH_UNSAFE: [&str; 3] = ["net/runtime/", "storage/log/", "net/wire/tests/wire/metering.rs"];

/// The floor of each crate. A crate may use those on lower floors only.
const FLOORS: &[(&str, &str, u8)] = &[
    ("tarn-record", "storage/record", 0),
    ("tarn-metrics", "metrics", 0),
    ("tarn-log", "storage/log", 1),
    ("tarn-wire", "net/wire", 1),
    ("tarn-runtime", "net/runtime", 1),
    ("tarn-image", "controller/image", 2),
    ("tarn-transport", "net/transport", 2),
    ("tarn-quorum", "controller/quorum", 3),
    ("tarn-mirror", "mirror", 3),
    ("tarn-broker", "broker", 4),
    ("tarn", "tools", 5),
    ("tarn-tests", "tests", 5),
    ("tarn-perf", "perf", 5),
];

#[test]
fn every_crate_has_its_floor_and_uses_lower_ones_only() {
    let floors: BTreeMap<&str, u8> = FLOORS.iter().map(|&(name, _, floor)| (name, floor)).collect();
    let members = workspace_members();
    let folders: BTreeSet<String> = FLOORS.iter().map(|&(_, folder, _)| folder.to_string()).collect();
    assert_eq!(members, folders, "members of the workspace, and folders that have a floor");
    for &(name, folder, floor) in FLOORS {
        let manifest = read(&source_root().join(folder).join("Cargo.toml"));
        for used in crates_in_manifest(&manifest).into_iter().filter(|used| used != name) {
            let below = floors.get(used.as_str());
            assert!(
                below.is_some_and(|below| *below < floor),
                "{name} (floor {floor}) uses {used} ({below:?})"
            );
        }
        let declared = crates_in_manifest(&manifest);
        for file in rust_files(&source_root().join(folder)) {
            for used in crates_in_source(&read(&file)) {
                let own = used == name || declared.contains(&used);
                assert!(own, "{}: {used} is not a dependency of {name}", relative(&file));
            }
        }
    }
}

#[test]
fn only_the_runtime_names_a_ring_and_only_system_call_wrappers_are_unsafe() {
    let ring = Regex::new(r"\b(io_uring|async_task)::").expect("it is a pattern");
    let unsafe_code = Regex::new(r"\bunsafe\s*(\{|fn|impl)").expect("it is a pattern");
    for file in all_rust_files() {
        let path = relative(&file);
        let text = read(&file);
        let says = |pattern: &Regex| text.lines().any(|line| is_code(line) && pattern.is_match(line));
        assert!(!says(&ring) || path.starts_with("net/runtime/"), "{path} names the executor's parts");
        let allowed = WITH_UNSAFE.iter().any(|start| path.starts_with(start));
        assert!(!says(&unsafe_code) || allowed, "{path} has unsafe code");
    }
}

#[test]
fn nothing_lies_beside_the_files_that_a_tool_has_left_there() {
    for &(_, folder, _) in FLOORS {
        for file in below(&source_root().join(folder)) {
            let is_left = ["orig", "rej", "bak", "swp"].contains(&extension(&file));
            assert!(!is_left, "{}: nobody reads it", relative(&file));
        }
    }
}

#[test]
fn no_file_is_longer_than_the_limit() {
    for file in all_rust_files() {
        let lines = read(&file).lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines: look for its second idea", relative(&file));
    }
}

#[test]
fn no_module_has_a_vague_name() {
    for file in all_rust_files() {
        for part in Path::new(&relative(&file)).iter() {
            let name = part.to_string_lossy();
            let stem = name.strip_suffix(".rs").unwrap_or(&name);
            assert!(!VAGUE.contains(&stem), "{}: say what it is", relative(&file));
        }
    }
}

#[test]
fn every_file_begins_with_what_it_is() {
    for file in all_rust_files() {
        let text = read(&file);
        assert!(text.starts_with("//! "), "{} has no head comment", relative(&file));
    }
}

#[test]
fn nothing_is_left_for_later() {
    // Spelled apart, so that this line is not its own finding.
    let marks = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"], ["to", "do!("], ["unimple", "mented!("]]
        .map(|halves| halves.concat());
    for file in all_rust_files().into_iter().chain(scripts()) {
        let text = read(&file);
        for (number, line) in text.lines().enumerate() {
            let mark = marks.iter().find(|mark| contains_word(line, mark));
            assert_eq!(mark, None, "{}:{}: {line}", relative(&file), number + 1);
        }
    }
}

#[test]
fn every_test_file_is_part_of_a_test() {
    for folder in ["kafka", "clients", "faults", "sim", "fuzz"] {
        let root = source_root().join("tests").join(folder);
        let main = root.join("main.rs");
        let text = read(&main);
        for file in files_in(&root).into_iter().filter(|file| is_rust(file) && *file != main) {
            let name = file.file_stem().expect("it has a name").to_string_lossy().into_owned();
            let declared = Regex::new(&format!(r"(?m)^mod {name};$")).expect("a file's name is no pattern");
            assert!(declared.is_match(&text), "{} is not in {}", relative(&file), relative(&main));
        }
    }
}

#[test]
fn what_a_newcomer_looks_for_is_there() {
    let root = source_root();
    for name in [
        "README.md",
        "LICENSE",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "rustfmt.toml",
        ".ci/run",
        "tests/run.sh",
        "tools/quickstart.sh",
        "perf/run.sh",
        "perf/RESULTS.md",
    ] {
        let file = root.join(name);
        assert!(fs::metadata(&file).is_ok_and(|found| found.len() > 0), "{name} is missing or empty");
    }
    assert!(read(&root.join("LICENSE")).contains("Apache License"));
}

#[test]
fn scripts_are_executable_and_stop_at_their_first_error() {
    use std::os::unix::fs::PermissionsExt;
    for script in scripts() {
        let text = read(&script);
        let path = relative(&script);
        let (bash, sh) = (text.starts_with("#!/usr/bin/env bash\n"), text.starts_with("#!/bin/sh\n"));
        assert!(bash || sh, "{path} does not say who runs it");
        let strict =
            |line: &str| line.starts_with("set -") && line.contains('u') && line.contains("pipefail");
        assert!(sh || text.lines().any(strict), "{path} goes on after an unset variable or a failed pipe");
        let mode = fs::metadata(&script).expect("it was just read").permissions().mode();
        assert!(mode & 0o100 != 0, "{path} is not executable");
    }
}

#[test]
fn every_schema_message_named_as_generated_is_in_a_schema() {
    let schemas = source_root().join("net/wire/schemas");
    let texts: String =
        files_in(&schemas).iter().filter(|file| extension(file) == "txt").map(|file| read(file)).collect();
    let list = read(&schemas.join("generated.list"));
    let names = list.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace);
    let mut seen = BTreeSet::new();
    for name in names {
        let declared =
            Regex::new(&format!(r"(?m)^@ [\w-]+ {name}(Request)?\b")).expect("a name is no pattern");
        assert!(declared.is_match(&texts), "{name} is in no schema");
        assert!(seen.insert(name), "{name} is listed twice");
    }
    assert!(seen.len() > 50, "the list has its messages");
}

fn workspace_members() -> BTreeSet<String> {
    let manifest = read(&source_root().join("Cargo.toml"));
    let list = manifest.split("members = [").nth(1).and_then(|rest| rest.split(']').next());
    let list = list.expect("the workspace lists its members");
    list.split(',')
        .map(|entry| entry.trim().trim_matches('"').to_string())
        .filter(|entry| !entry.is_empty())
        .collect()
}

/// Our crates that a manifest depends on, for tests included.
fn crates_in_manifest(manifest: &str) -> BTreeSet<String> {
    let entry = Regex::new(r"(?m)^(tarn[a-z-]*)(?:\.workspace)?\s*=").expect("it is a pattern");
    entry.captures_iter(manifest).map(|found| found[1].to_string()).collect()
}

/// Our crates that a source file names in paths.
fn crates_in_source(text: &str) -> BTreeSet<String> {
    let path = Regex::new(r"\b(tarn_[a-z]+)::").expect("it is a pattern");
    let code = text.lines().filter(|line| is_code(line));
    code.flat_map(|line| path.captures_iter(line).map(|found| found[1].replace('_', "-"))).collect()
}

fn is_code(line: &str) -> bool {
    !line.trim_start().starts_with("//")
}

fn contains_word(line: &str, mark: &str) -> bool {
    let bounded = |at: usize| {
        let before = line[..at].chars().next_back().is_none_or(|one| !one.is_alphanumeric() && one != '_');
        let after = line[at + mark.len()..].chars().next();
        before && (mark.ends_with('(') || after.is_none_or(|one| !one.is_alphanumeric() && one != '_'))
    };
    line.match_indices(mark).any(|(at, _)| bounded(at))
}

fn all_rust_files() -> Vec<PathBuf> {
    let files: Vec<PathBuf> =
        FLOORS.iter().flat_map(|&(_, folder, _)| rust_files(&source_root().join(folder))).collect();
    assert!(files.len() > 100, "the tree is found");
    files
}

fn scripts() -> Vec<PathBuf> {
    let root = source_root();
    let mut scripts = vec![root.join(".ci/run")];
    for folder in ["tests", "tools", "perf"] {
        scripts.extend(below(&root.join(folder)).into_iter().filter(|file| extension(file) == "sh"));
    }
    scripts
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    below(folder).into_iter().filter(|file| is_rust(file)).collect()
}

/// Every file below a folder, but for what builds leave.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("the tree is readable").path();
            let skipped = path.file_name().is_some_and(|name| name == "target" || name == "__pycache__");
            match path.is_dir() {
                true if !skipped => folders.push(path),
                true => {}
                false => files.push(path),
            }
        }
    }
    files.sort();
    files
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.expect("the tree is readable").path()).filter(|path| path.is_file()).collect()
}

fn is_rust(file: &Path) -> bool {
    extension(file) == "rs"
}

fn extension(file: &Path) -> &str {
    file.extension().and_then(|kind| kind.to_str()).unwrap_or_default()
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn relative(file: &Path) -> String {
    file.strip_prefix(source_root()).unwrap_or(file).display().to_string()
}
