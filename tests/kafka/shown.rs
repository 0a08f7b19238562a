//! What a node shows to those who run it: metrics that change with what is mirrored, and levels of its log that change
//! while it runs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;
use tarn_tests::golden::replaced;
use tarn_tests::ports::{free_port, local};
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::tool;
use tarn_tests::waiting::{until, until_some};

use crate::side_by_side::SideBySide;

const CONFIGS: &str = "ConfigCommand";
const SOON: Duration = Duration::from_secs(60);

#[test]
fn kafka_configs_prints_the_same_of_broker_loggers() {
    let both = SideBySide::start();
    // Of the loggers, both have `root` alone.
    let root_alone =
        |text: String| replaced(&text, r"(?m)^  [^r=\n][^=\n]*=.*\n|^  r[^o=\n][^=\n]*=.*\n", "");
    let loggers = |arguments: &[&str]| {
        let of_loggers = [&["--entity-type", "broker-loggers"], arguments].concat();
        let run =
            |bootstrap: &str| tool(CONFIGS, &[&["--bootstrap-server", bootstrap], &of_loggers[..]].concat());
        both.compare(&format!("{CONFIGS} {}", of_loggers.join(" ")), run, root_alone, &[]);
    };
    let alter = |arguments: &[&str]| loggers(&[&["--alter", "--entity-name", "1"], arguments].concat());
    // Their levels at the start are their own.
    alter(&["--add-config", "root=ERROR"]);
    loggers(&["--describe", "--entity-name", "1"]);
    alter(&["--add-config", "root=LOUD"]);
    alter(&["--add-config", "root=OFF"]);
    alter(&["--add-config", "root=debug"]);
    alter(&["--add-config", "no.such.logger=INFO"]);
    alter(&["--delete-config", "root"]);
    alter(&["--delete-config", "no.such.logger"]);
    alter(&["--add-config", "root=FATAL"]);
    loggers(&["--describe", "--entity-name", "1"]);
    loggers(&["--describe", "--entity-name", "nobody"]);
    loggers(&["--describe"]);
}

#[test]
fn a_logger_that_kafkas_tool_sets_to_debug_says_more_and_one_that_it_resets_no_longer() {
    let options =
        TarnOptions { properties: vec![("tarn.log.format".into(), "json".into())], ..TarnOptions::default() };
    let tarn = Tarn::start(&options);
    let logger = |arguments: &[&str]| {
        let bootstrap = tarn.bootstrap();
        let fixed =
            ["--bootstrap-server", &bootstrap, "--entity-type", "broker-loggers", "--entity-name", "1"];
        tool(CONFIGS, &[&fixed[..], arguments].concat()).ok()
    };
    let level = || {
        let described = logger(&["--describe"]);
        let line = described.lines().find_map(|line| line.trim().strip_prefix("tarn_transport="));
        line.expect("every crate is a logger").split(' ').next().expect("a level").to_owned()
    };
    let debug_lines = || {
        let output = tarn.output();
        // The last line may be being written.
        let whole = output.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines =
            whole.lines().map(|line| serde_json::from_str::<Value>(line).expect("each line is an object"));
        lines.filter(|line| line["level"] == "DEBUG").collect::<Vec<_>>()
    };
    assert_eq!((level(), debug_lines().len()), ("INFO".to_owned(), 0));
    logger(&["--alter", "--add-config", "tarn_transport=DEBUG"]);
    assert_eq!(level(), "DEBUG");
    until("a connection is closed, which is worth a line of DEBUG", SOON, || !debug_lines().is_empty());
    for line in debug_lines() {
        let target = line["target"].as_str().unwrap_or_default();
        assert!(target.starts_with("tarn_transport"), "{line}");
    }
    logger(&["--alter", "--delete-config", "tarn_transport"]);
    assert_eq!(level(), "INFO");
    // That command's own connections are closed by now, or soon; those of the next are what matters.
    let described = |line: &Value| line["fields"]["message"].as_str().unwrap_or_default().to_owned();
    let before = debug_lines().len();
    level();
    let since = debug_lines().split_off(before);
    assert!(since.is_empty(), "{:?}", since.iter().map(described).collect::<Vec<_>>());
}

#[test]
fn what_is_mirrored_and_how_far_it_is_behind_is_told() {
    let admin = free_port();
    let options = TarnOptions {
        properties: vec![("tarn.admin.listener".into(), local(admin))],
        ..TarnOptions::default()
    };
    let (mut source, tarn) = (Tarn::start_source(), Tarn::start(&options));
    source.create_topic("orders", 2);
    produce(&source, 500);
    tarn.mirror_from(&source.bootstrap(), "dr", "orders");
    let records = |page: &str| value(page, "tarn_mirror_records_total");
    until("all of it is mirrored", SOON, || records(&scrape(admin)) == 500);
    let page = scrape(admin);
    for (name, expected) in [
        ("tarn_mirror_lag_records{mirror=\"dr\"}", 0),
        ("tarn_mirror_partitions{mirror=\"dr\",state=\"MIRRORING\"}", 2),
        ("tarn_mirror_partition_lag_records{mirror=\"dr\",topic=\"orders\",partition=\"1\"}", 0),
        ("kafka_server_mirror_mirrormetadatamanager_mirroringpartitionstate", 2),
        ("kafka_server_mirror_mirrormetadatamanager_mirrortopiccount{mirrorName=\"dr\"}", 1),
        ("tarn_mirror_link_failures_total", 0),
        // What is mirrored is nothing that a client produced.
        ("kafka_server_brokertopicmetrics_messagesin_total{topic=\"orders\"}", 0),
    ] {
        assert_eq!(value(&page, name), expected, "{name}");
    }
    produce(&source, 7);
    until("what came later is mirrored too", SOON, || records(&scrape(admin)) == 507);
    source.stop();
    let silence = |page: &str| value(page, "tarn_mirror_last_fetch_age_ms_max{mirror=\"dr\"}");
    until("the silence of the source grows", SOON, || silence(&scrape(admin)) > 2000);
    // Whoever met it first: the fetches, or, where the source had handed its partitions back, the next look for them.
    until("the broken link is counted", SOON, || {
        value(&scrape(admin), "tarn_mirror_link_failures_total") > 0
    });
}

fn produce(to: &Tarn, records: u32) {
    let lines: String = (0..records).map(|number| format!("{number}\n")).collect();
    let arguments = ["--bootstrap-server", &to.bootstrap(), "--topic", "orders"];
    tarn_tests::tools::tool_with_input("ConsoleProducer", &arguments, Some(lines.as_bytes())).ok();
}

fn scrape(port: u16) -> String {
    until_some("it tells about itself", SOON, || {
        let mut stream = TcpStream::connect(local(port)).map_err(|error| error.to_string())?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").map_err(|error| error.to_string())?;
        let mut page = String::new();
        stream.read_to_string(&mut page).map_err(|error| error.to_string())?;
        if page.starts_with("HTTP/1.1 200 ") { Ok(page) } else { Err(page) }
    })
}

/// The value of one series; 0 where it is not there yet.
fn value(page: &str, series: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().unwrap_or_else(|_| panic!("{series} is {value}")))
}
