//! How many executors there are, and where mirrors fetch, changes nothing that anyone can see.

use std::time::Duration;
use tarn_tests::compare::{assert_identical, await_mirrored};
use tarn_tests::dataset::Source;
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::kcat;

const COPIED: Duration = Duration::from_secs(60);

fn mirrored(topic: &str) -> bool {
    !topic.starts_with("__")
}

fn on_cores(cores: &'static str) -> TarnOptions {
    TarnOptions { cores: Some(cores), ..TarnOptions::default() }
}

#[test]
fn one_directory_is_served_with_one_two_and_four_executors() {
    let source = Source::start();
    let mut tarn = Tarn::start(&on_cores("0"));
    tarn.mirror_from(&source.bootstrap(), "m", ".*");
    for (cores, record) in [("0", "one"), ("0,1", "two"), ("0,0,1,1", "four"), ("0", "one again")] {
        tarn.reconfigure(&on_cores(cores));
        tarn.stop();
        tarn.start_again();
        let append = ["-P", "-b", &source.bootstrap(), "-t", "codec.lz4", "-p", "2"];
        kcat(&append, Some(format!("{record}\n").as_bytes())).ok();
        await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);
        assert_identical(&source.bootstrap(), &tarn.bootstrap(), mirrored);
    }
}

#[test]
fn fetchers_on_a_core_of_their_own_copy_the_same() {
    let source = Source::start();
    let options = TarnOptions { cores: Some("0"), mirror_cores: Some("1"), ..TarnOptions::default() };
    let mut tarn = Tarn::start(&options);
    tarn.mirror_from(&source.bootstrap(), "m", ".*");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);
    assert_identical(&source.bootstrap(), &tarn.bootstrap(), mirrored);
    // And two of either, on whichever CPUs.
    tarn.reconfigure(&TarnOptions {
        cores: Some("0,1"),
        mirror_cores: Some("0,1"),
        ..TarnOptions::default()
    });
    tarn.kill();
    tarn.start_again();
    kcat(&["-P", "-b", &source.bootstrap(), "-t", "empty", "-p", "1"], Some(b"more\n")).ok();
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);
    assert_identical(&source.bootstrap(), &tarn.bootstrap(), mirrored);
}
