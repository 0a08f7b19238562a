//! What clients in other languages read of a topic that was mirrored and failed over: past abort markers and the reset
//! record, what was aborted only where they ask for it.

use std::time::Duration;

use tarn_tests::compare::await_mirrored;
use tarn_tests::dataset::Source;
use tarn_tests::report::reports;
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::{franz_go, java_program, python};

const COPIED: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(60);
/// Records of the source's open transaction, and those before it.
const OPEN: usize = 500;
const BEFORE: usize = 500;

#[test]
fn clients_read_past_what_a_failover_appended() {
    let mut source = Source::start();
    let tarn = Tarn::start(&TarnOptions::default());
    let wanted = |topic: &str| topic == "transaction.open" || topic == "empty";
    tarn.mirror_from(&source.bootstrap(), "m", "transaction.open,empty");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    source.node.kill();
    let stopped = reports(&tarn.mirror("failover", &["--mirror", "m", "--json"]).ok());
    let open = &stopped[&("transaction.open".to_string(), 0)];
    assert_eq!(open.aborted, 1);
    let bootstrap = tarn.bootstrap();
    let written = python("write_refused.py", &[&bootstrap, "transaction.open", "0"]).ok();
    assert_eq!(written, format!("written at offset {}\n", open.reset_offset + 1));

    for level in ["read_uncommitted", "read_committed"] {
        // One partition ends with a record; the others with the reset alone.
        let arguments = [bootstrap.as_str(), level, "transaction.open", "empty"];
        let by_java = sorted(&java_program("ReadBack", &arguments, None, LIMIT).ok());
        let records = by_java.iter().filter(|line| !line.starts_with("end ")).count();
        let aborted = if level == "read_committed" { 0 } else { OPEN };
        assert_eq!(records, BEFORE + aborted + 1, "{level}");
        for (client, read) in [
            ("librdkafka", python("read_back_librdkafka.py", &arguments)),
            ("kafka-python", python("read_back_kafka_python.py", &arguments)),
            ("franz-go", franz_go(&arguments)),
        ] {
            let read = sorted(&read.ok());
            let differs = by_java.iter().zip(&read).find(|(java, other)| java != other);
            assert!(
                read == by_java,
                "{client}, {level}: {} lines, {} by Java; {differs:?}",
                read.len(),
                by_java.len()
            );
        }
    }
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.sort();
    lines
}
