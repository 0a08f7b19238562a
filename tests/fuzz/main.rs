//! Hostile input: every decoder of bytes that come from a socket or a file, under changed inputs.
//!
//! Whatever the bytes are, a decoder does not panic or abort, takes no more memory than a small multiple of them, and
//! ends. A seed is a run: it is the same each time. `SEED`, `COUNT` and `TARGET` say which is done, `INPUT` replays one
//! input. Decoders that are wrong on purpose are found within the same number of inputs.

#![allow(missing_docs, reason = "nothing here is a library")]

mod archive;
mod checksums;
mod engine;
#[allow(clippy::field_reassign_with_default, reason = "which fields a version has is known only then")]
#[allow(unused_imports, unused_macros, reason = "not all that it has is of use here")]
#[path = "../../net/wire/tests/wire/maker.rs"]
mod maker;
#[path = "../../net/wire/tests/wire/metering.rs"]
mod metering;
mod mutation;
mod paper_disk;
mod process;
mod targets;

use std::collections::BTreeSet;
use std::fs;

use engine::Target;
use process::{Length, corpus, corpus_root, must_be_found, search};
use targets::{batches, broken, codecs, directory, files, messages, metadata, partition, texts};

/// How much longer the searches are that take long.
const LONGER: u64 = 20;

/// What the corpus may take, in bytes.
const CORPUS_BYTES_MAX: usize = 200 * 1024;

/// Two tests for each kind of decoder: of its name, and of the name of the one that takes long.
macro_rules! searches {
    ($($name:ident, $longer:ident: $targets:path;)*) => {
        /// Every target there is.
        fn all_targets() -> Vec<Target> {
            [$($targets()),*].into_iter().flatten().collect()
        }

        $(
            #[test]
            fn $name() {
                search(stringify!($name), Length::Short, $targets);
            }

            #[test]
            #[ignore = "takes minutes"]
            fn $longer() {
                search(stringify!($longer), Length::Long(LONGER), $targets);
            }
        )*
    };
}

searches! {
    messages_of_every_schema, messages_of_every_schema_for_longer: messages::all;
    what_stands_around_messages, what_stands_around_messages_for_longer: messages::framed;
    record_batches, record_batches_for_longer: batches::all;
    compressed_records, compressed_records_for_longer: codecs::all;
    small_files, small_files_for_longer: files::all;
    a_partitions_directory, a_partitions_directory_for_longer: partition::all;
    a_log_directory, a_log_directory_for_longer: directory::all;
    the_controllers_records, the_controllers_records_for_longer: metadata::all;
    texts_of_people_and_clients, texts_of_people_and_clients_for_longer: texts::all;
}

/// A schema that is added is searched without anybody's doing; this says so, should that change.
#[test]
fn every_message_of_the_schemas_has_a_target() {
    let targets: BTreeSet<String> = messages::all().into_iter().map(|target| target.name).collect();
    let list = include_str!("../../net/wire/schemas/generated.list");
    let names = list.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace);
    let has = |name: String| targets.contains(&format!("message.{name}"));
    let mut seen = 0;
    for name in names {
        let is_api = has(format!("{name}Request")) && has(format!("{name}Response"));
        assert!(is_api || has(name.to_owned()), "nothing reads hostile bytes as {name}");
        seen += if is_api { 2 } else { 1 };
    }
    assert_eq!(seen, targets.len(), "targets of messages that the list has not");
}

#[test]
fn every_target_has_a_name_of_its_own_and_inputs_that_are_good() {
    let mut names = BTreeSet::new();
    for target in all_targets() {
        assert!(!target.seeds.is_empty(), "{} begins with nothing", target.name);
        assert!(names.insert(target.name), "two targets have one name");
    }
}

#[test]
fn the_corpus_is_small_and_each_folder_of_it_is_a_targets() {
    let names: BTreeSet<String> = all_targets().into_iter().map(|target| target.name).collect();
    let mut bytes = 0;
    for folder in fs::read_dir(corpus_root()).expect("there is a corpus") {
        let name = folder.expect("the tree is readable").file_name().to_string_lossy().into_owned();
        assert!(names.contains(&name), "nobody reads tests/fuzz/corpus/{name}");
        let inputs = corpus(&name);
        assert!(!inputs.is_empty(), "tests/fuzz/corpus/{name} is empty");
        bytes += inputs.iter().map(|(_, input)| input.len()).sum::<usize>();
    }
    assert!(bytes <= CORPUS_BYTES_MAX, "the corpus has {bytes} bytes");
}

/// The same for decoders that are wrong on purpose, with what is said of them.
macro_rules! must_be_found {
    ($($name:ident: $targets:path, $what:literal;)*) => {
        $(
            #[test]
            fn $name() {
                must_be_found(stringify!($name), $what, $targets);
            }
        )*
    };
}

must_be_found! {
    a_decoder_that_panics_is_found: broken::panics, "it panics";
    a_decoder_that_takes_memory_is_found: broken::takes_memory, "bytes of memory";
    a_decoder_that_aborts_is_found: broken::aborts, "the process ended with signal";
    a_decoder_that_never_ends_is_found: broken::never_ends, "it does not end";
    a_decoder_that_yields_for_ever_is_found: broken::yields_for_ever, "it does not end within";
}
