//! A recent librdkafka, through its Python package.

use std::time::Duration;
use tarn_tests::compare::{assert_identical, await_mirrored};
use tarn_tests::dataset::Source;
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::{python, tool};

#[test]
fn librdkafka_is_told_who_owns_a_mirror_topic_and_writes_to_others() {
    let source = Source::start();
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&source.bootstrap(), "m", "codec.none");
    let wanted = |topic: &str| topic == "codec.none";
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, Duration::from_secs(60));

    let refused = python("write_refused.py", &[&tarn.bootstrap(), "codec.none", "0"]).ok();
    assert!(refused.starts_with("POLICY_VIOLATION (44): "), "{refused}");
    assert_identical(&source.bootstrap(), &tarn.bootstrap(), wanted);

    tool("TopicCommand", &["--bootstrap-server", &tarn.bootstrap(), "--create", "--topic", "own"]).ok();
    let written = python("write_refused.py", &[&tarn.bootstrap(), "own", "0"]).ok();
    assert_eq!(written, "written at offset 0\n");
}
