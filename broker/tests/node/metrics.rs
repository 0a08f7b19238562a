//! What a node tells in numbers, over HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tarn_wire::ErrorCode;
use tarn_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use tarn_wire::messages::{
    DescribeClusterMirrorsRequest, FetchRequest, MetadataRequest, StopMirrorTopicsRequest,
};

use crate::mirrored::Source;
use crate::running::{Client, PATIENCE, Running, produce, refusal_on_formatted, until};

const ADMIN: &str = "tarn.admin.listener=127.0.0.1:0\n";

#[test]
fn what_was_produced_and_fetched_is_counted_exactly() {
    let node = Running::new(ADMIN);
    let mut client = node.client();
    client.create("orders", 2, &[]);
    client.create("idle", 1, &[]);
    for _ in 0..3 {
        assert_eq!(client.produce("orders", -1, 100).error_code, 0);
    }
    assert_eq!(client.produce("orders", 1, 2_000_000).error_code, ErrorCode::MESSAGE_TOO_LARGE.0);
    let batch = produce("orders", 1, 100).topic_data[0].partition_data[0].records.clone();
    let bytes = 3 * batch.expect("it has one").len() as u64;
    let fetched = client.call(12, &fetch("orders"));
    let records = fetched.responses[0].partitions[0].records.as_ref().map_or(0, |records| records.len());
    assert_eq!(records as u64, bytes);

    let page = Page::of(&node);
    let traffic = |name: &str, topic: &str| {
        let name = format!("kafka_server_brokertopicmetrics_{name}_total");
        let labels = [("topic", topic)];
        page.value(&name, &labels[usize::from(topic.is_empty())..])
    };
    for topic in ["", "orders"] {
        assert_eq!(traffic("messagesin", topic), 3.0);
        assert_eq!(traffic("bytesin", topic), bytes as f64);
        assert_eq!(traffic("bytesout", topic), bytes as f64);
        assert_eq!(traffic("totalproducerequests", topic), 4.0);
        assert_eq!(traffic("failedproducerequests", topic), 1.0);
        assert_eq!(traffic("totalfetchrequests", topic), 1.0);
        assert_eq!(traffic("failedfetchrequests", topic), 0.0);
    }
    assert!(!page.has("kafka_server_brokertopicmetrics_bytesin_total", &[("topic", "idle")]));
    let produces = [("request", "Produce"), ("version", "9")];
    assert_eq!(page.value("kafka_network_requestmetrics_requests_total", &produces), 4.0);
    assert_eq!(page.value("kafka_network_requestmetrics_totaltimems_count", &produces[..1]), 4.0);
    for quantile in ["0.50", "0.75", "0.95", "0.98", "0.99", "0.999"] {
        let labels = [("request", "FetchConsumer"), ("quantile", quantile)];
        assert!(page.value("kafka_network_requestmetrics_totaltimems", &labels) < 60_000.0);
    }
    let partition = [("topic", "orders"), ("partition", "0")];
    assert_eq!(page.value("kafka_log_log_size", &partition), bytes as f64);
    assert_eq!(page.value("kafka_log_log_logendoffset", &partition), 3.0);
    assert_eq!(page.value("kafka_log_log_numlogsegments", &partition), 1.0);
    assert!(page.value("kafka_log_logflushstats_logflushrateandtimems_count", &[]) >= 1.0);
    // One for each batch; a fetch has one besides those of its partitions.
    for (request, error, count) in
        [("Produce", "NONE", 3.0), ("Produce", "MESSAGE_TOO_LARGE", 1.0), ("Fetch", "NONE", 2.0)]
    {
        let labels = [("request", request), ("error", error)];
        assert_eq!(page.value("kafka_network_requestmetrics_errors_total", &labels), count, "{labels:?}");
    }
}

#[test]
fn errors_are_counted_where_nothing_is_answered_and_in_answers_that_are_kept() {
    let node = Running::new(ADMIN);
    let mut client = node.client();
    client.create("large", 2_500, &[]);
    let errors = |request: &str, error: &str| {
        let labels = [("request", request), ("error", error)];
        let page = Page::of(&node);
        let name = "kafka_network_requestmetrics_errors_total";
        if page.has(name, &labels) { page.value(name, &labels) } else { 0.0 }
    };
    let before = errors("Metadata", "NONE");
    for times in 1..=2 {
        assert_eq!(client.call(12, &MetadataRequest { topics: None, ..Default::default() }).topics.len(), 1);
        assert_eq!(
            errors("Metadata", "NONE") - before,
            2_501.0 * f64::from(times),
            "each time that it is sent"
        );
    }
    client.send(9, &produce("nowhere", 0, 10));
    let mut rest = Vec::new();
    client.stream().read_to_end(&mut rest).expect("it is closed");
    assert_eq!(errors("Produce", "UNKNOWN_TOPIC_OR_PARTITION"), 1.0);
}

#[test]
fn the_time_that_a_fetch_waits_for_records_is_told_apart_from_work() {
    let node = Running::new(ADMIN);
    let mut client = node.client();
    client.create("t", 1, &[]);
    client.call(12, &FetchRequest { max_wait_ms: 700, min_bytes: 1, ..fetch("t") });
    client.produce("t", 1, 10);
    let page = Page::of(&node);
    let time = |kind: &str, request: &str, part: &str| {
        let name = format!("kafka_network_requestmetrics_{kind}timems_{part}");
        page.has(&name, &[("request", request)]).then(|| page.value(&name, &[("request", request)]))
    };
    for request in ["Fetch", "FetchConsumer"] {
        let [total, local, remote] =
            ["total", "local", "remote"].map(|kind| time(kind, request, "sum").expect("it is told"));
        assert!(local + remote >= 690.0 && remote >= 350.0, "{local} and {remote}");
        assert!(local + remote <= total, "{local} and {remote} are no more than {total}");
        assert_eq!(time("local", request, "count"), Some(1.0));
    }
    assert_eq!(time("local", "Produce", "sum"), time("total", "Produce", "sum"));
    assert_eq!(time("remote", "Produce", "sum"), None, "it waits for nobody");
}

#[test]
fn what_the_cleaner_did_and_how_the_directories_are_is_told() {
    let eager = "log.cleaner.backoff.ms=50\nlog.flush.offset.checkpoint.interval.ms=100\n";
    let node = Running::new(&format!("{ADMIN}{eager}log.cleaner.threads=2\n"));
    let mut client = node.client();
    let compacted =
        [("cleanup.policy", "compact"), ("segment.bytes", "1048576"), ("min.cleanable.dirty.ratio", "0.01")];
    client.create("t", 1, &compacted);
    crate::compacting::fill(&mut client, "t", 3, 30);
    let began = Instant::now();
    let page = loop {
        let page = Page::of(&node);
        let is_done = page.value("tarn_cleaner_rounds_total", &[]) > 0.0;
        if is_done && page.value("kafka_log_logcleaner_cleaner_recopy_percent", &[]) > 0.0 {
            break page;
        }
        assert!(began.elapsed() < PATIENCE, "{}", page.text);
    };
    assert!(page.value("kafka_log_logcleaner_cleaner_recopy_percent", &[]) < 60.0);
    assert!(page.value("tarn_cleaner_read_bytes_total", &[]) > 2e6);
    assert!(page.value("kafka_log_logcleanermanager_time_since_last_run_ms", &[]) < 60_000.0);
    for none in [
        "logcleaner_deadthreadcount",
        "logcleaner_max_compaction_delay_secs",
        "logmanager_offlinelogdirectorycount",
    ] {
        assert_eq!(page.value(&format!("kafka_log_{none}"), &[]), 0.0, "{none}");
    }
    assert!(page.value("kafka_log_logcleaner_max_buffer_utilization_percent", &[]) <= 100.0);
    let dirs: Vec<&str> = page.labels("kafka_log_logmanager_logdirectoryoffline", "logDirectory").collect();
    assert_eq!(dirs.len(), 1);
    let labels = [("logDirectory", dirs[0])];
    assert_eq!(page.value("kafka_log_logmanager_logdirectoryoffline", &labels), 0.0);
    assert_eq!(page.value("kafka_log_logcleanermanager_uncleanable_partitions_count", &labels), 0.0);
    assert_eq!(page.value("kafka_log_logmanager_remaininglogstorecover", &[("dir", dirs[0])]), 0.0);
}

#[test]
fn the_cluster_and_its_partitions_are_told() {
    let node = Running::new(ADMIN);
    let mut client = node.client();
    client.create("t", 3, &[]);
    let led = "kafka_server_replicamanager_leadercount";
    until("each core to lead what is its own", || Page::of(&node).value(led, &[]) == 3.0);
    let own = Page::of(&node);
    let of_replicas = |name: &str| own.value(&format!("kafka_server_replicamanager_{name}"), &[]);
    // The mirrors' state topic is made when there is a mirror.
    assert_eq!(of_replicas("partitioncount"), 3.0);
    assert_eq!(of_replicas("leadercount"), 3.0);
    assert_eq!(of_replicas("atminisrpartitioncount"), 3.0);
    for none in ["underreplicatedpartitions", "underminisrpartitioncount", "offlinereplicacount"] {
        assert_eq!(of_replicas(none), 0.0, "{none}");
    }
    let of_controller = |name: &str| own.value(&format!("kafka_controller_kafkacontroller_{name}"), &[]);
    assert_eq!(of_controller("activecontrollercount"), 1.0);
    assert_eq!(of_controller("activebrokercount"), 1.0);
    assert_eq!(of_controller("globaltopiccount"), 1.0);
    assert_eq!(of_controller("globalpartitioncount"), 3.0);
    assert_eq!(of_controller("offlinepartitionscount"), 0.0);
    let applied = own.value("kafka_server_broker_metadata_metrics_last_applied_record_offset", &[]);
    assert!(applied > 0.0 && applied <= of_controller("lastcommittedrecordoffset"));
    assert_eq!(own.sum("kafka_server_socket_server_metrics_connection_count"), 1.0);
    let listeners: BTreeSet<&str> =
        own.labels("kafka_server_socket_server_metrics_connection_count", "listener").collect();
    assert_eq!(listeners.into_iter().collect::<Vec<_>>(), ["CONTROLLER", "PLAINTEXT"]);
    assert_eq!(own.value("tarn_cold_lookups_under_way", &[]), 0.0);
    assert!(own.value("process_resident_memory_bytes", &[]) > 1e6);
    let names: BTreeSet<&str> = own.labels("tarn_limit", "name").collect();
    for known in ["cold_reads", "decompression_bytes", "descriptors", "memory_maps", "segment_descriptors"] {
        assert!(names.contains(known), "{known}: {names:?}");
    }
    assert_eq!(names, own.labels("tarn_used", "name").collect());
    for name in names {
        let [limit, used] = ["tarn_limit", "tarn_used"].map(|metric| own.value(metric, &[("name", name)]));
        assert!(used < limit, "{name}: {used} of {limit}");
    }
}

#[test]
fn a_deleted_topic_has_no_series_and_stays_in_the_sums() {
    let node = Running::new(ADMIN);
    let mut client = node.client();
    client.create("t", 1, &[]);
    assert_eq!(client.produce("t", 1, 10).error_code, 0);
    assert!(Page::of(&node).has("kafka_server_brokertopicmetrics_messagesin_total", &[("topic", "t")]));
    client.delete("t");
    let page = Page::of(&node);
    assert_eq!(page.value("kafka_server_brokertopicmetrics_messagesin_total", &[]), 1.0);
    assert!(!page.text.contains("topic=\"t\""), "{}", page.text);
}

#[test]
fn beyond_the_configured_numbers_topics_and_partitions_have_no_series_of_their_own() {
    let node = Running::new(&format!("{ADMIN}tarn.metrics.topics.max=1\ntarn.metrics.partitions.max=2\n"));
    let mut client = node.client();
    client.create("one", 2, &[]);
    assert_eq!(client.produce("one", 1, 10).error_code, 0);
    let page = Page::of(&node);
    let told = |page: &Page| {
        (page.value("tarn_topics_with_series", &[]), page.value("tarn_partitions_with_series", &[]))
    };
    assert_eq!(told(&page), (1.0, 2.0));
    client.create("other", 1, &[]);
    assert_eq!(client.produce("other", 1, 10).error_code, 0);
    let page = Page::of(&node);
    assert_eq!(told(&page), (0.0, 0.0));
    assert!(!page.text.contains("topic=\""), "{}", page.text);
    assert_eq!(page.value("kafka_server_brokertopicmetrics_messagesin_total", &[]), 2.0);
}

#[test]
fn what_has_left_a_mirror_is_counted_in_the_state_that_is_described() {
    let (source, node) = Source::mirrored_with(ADMIN);
    let mut client = node.client();
    let described = |client: &mut Client| {
        let request = DescribeClusterMirrorsRequest {
            mirror_names: None,
            topics: None,
            response_partition_limit: 10,
            ..Default::default()
        };
        let answer = client.call(0, &request);
        let counts = answer.mirrors[0].state_counts.iter();
        counts.map(|count| (count.state_value.to_string(), count.partitions)).collect::<Vec<_>>()
    };
    let counted = |state| {
        let page = Page::of(&node);
        page.value("tarn_mirror_partitions", &[("mirror", "m"), ("state", state)])
    };
    until("it mirrors", || described(&mut client) == [("MIRRORING".to_owned(), 1)]);
    assert_eq!((counted("MIRRORING"), counted("STOPPED")), (1.0, 0.0));
    let stop =
        StopMirrorTopicsRequest { mirror_name: "m".into(), patterns: vec!["t".into()], ..Default::default() };
    assert_eq!(client.call(0, &stop).error_code, 0);
    until("it is stopped", || described(&mut client) == [("STOPPED".to_owned(), 1)]);
    until("nobody looks after it", || counted("STOPPED") == 1.0 && counted("STOPPING") == 0.0);
    assert_eq!(counted("MIRRORING"), 0.0);
    drop(source);
    let again = Running::again_with(node.stop().path(), ADMIN);
    let stopped = [("mirror", "m"), ("state", "STOPPED")];
    assert_eq!(described(&mut again.client()), [("STOPPED".to_owned(), 1)]);
    assert_eq!(Page::of(&again).value("tarn_mirror_partitions", &stopped), 1.0, "a start changes nothing");
}

#[test]
fn health_and_readiness_are_told_and_all_else_is_refused() {
    let node = Running::new(ADMIN);
    for (request, status) in [
        ("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", "200 OK"),
        ("GET /readyz HTTP/1.0\r\n\r\n", "200 OK"),
        ("GET /nothing HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
        ("\x16\x03\x01\x02\0\x01\0", "400 Bad Request"),
        ("GET /metrics\r\n\r\n", "400 Bad Request"),
    ] {
        let answer = ask(node.admin_address(), request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request:?}: {answer}");
    }
    let head = ask(node.admin_address(), "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.ends_with("\r\n\r\n") && !head.contains("Content-Length: 0"), "{head}");
    let long = ask(node.admin_address(), &format!("GET /{}", "x".repeat(9000)));
    assert!(long.starts_with("HTTP/1.1 431 "), "{long}");
}

#[test]
fn whoever_is_silent_keeps_no_scrape_waiting() {
    let node = Running::new(ADMIN);
    let connect = || TcpStream::connect(node.admin_address()).expect("it listens");
    let silent: Vec<TcpStream> = (0..200).map(|_| connect()).collect();
    let mut half = connect();
    half.write_all(b"GET /metrics HTTP/1.1\r\n").expect("it is connected");
    let mut deaf = connect();
    deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it is connected");
    let began = Instant::now();
    for _ in 0..3 {
        Page::of(&node);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "a silent client has its deadline before: {began:?}");
    // All of them are let go in time.
    for mut left in silent.into_iter().chain([half]) {
        left.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let ended = left.read(&mut [0; 16]);
        let is_reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(
            ended.as_ref().is_ok_and(|read| *read == 0) || ended.as_ref().is_err_and(is_reset),
            "{ended:?}"
        );
    }
    assert_eq!(node.client().call(9, &MetadataRequest::default()).brokers.len(), 1);
}

#[test]
fn a_port_that_is_taken_is_told_with_its_key() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = taken.local_addr().expect("it is bound");
    let refused = refusal_on_formatted(&format!("tarn.admin.listener={address}\n"));
    assert!(refused.starts_with(&format!("tarn.admin.listener={address}: ")), "{refused}");
}

fn fetch(topic: &str) -> FetchRequest {
    let partition = FetchPartition {
        partition: 0,
        partition_max_bytes: 1 << 20,
        current_leader_epoch: -1,
        last_fetched_epoch: -1,
        ..FetchPartition::default()
    };
    let topic = FetchTopic { topic: topic.into(), partitions: vec![partition], ..FetchTopic::default() };
    FetchRequest { max_bytes: 1 << 20, session_epoch: -1, topics: vec![topic], ..FetchRequest::default() }
}

/// Sends this and reads to the end.
fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.write_all(request.as_bytes()).expect("it is connected");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers in UTF-8");
    let _ = stream.shutdown(Shutdown::Both);
    answer
}

/// A scrape, read as strictly as the format is written down.
struct Page {
    text: String,
    series: BTreeMap<(String, BTreeMap<String, String>), f64>,
}

impl Page {
    fn of(node: &Running) -> Page {
        let answer = ask(node.admin_address(), "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        let page = Page::parse(body.to_owned());
        for (name, labels) in page.series.keys() {
            assert!(described(name, labels), "{name} {labels:?} is in no table");
        }
        page
    }

    fn parse(text: String) -> Page {
        let mut series = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut family = (String::new(), String::new());
        let mut lines = text.split_terminator('\n').peekable();
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, _) = help.split_once(' ').expect("a name and a help");
                let kind =
                    lines.next().and_then(|line| line.strip_prefix("# TYPE ")).expect("a type follows");
                let kind = kind.strip_prefix(name).and_then(|kind| kind.strip_prefix(' '));
                let kind = kind.expect("a type is of the same metric");
                assert!(["counter", "gauge", "summary"].contains(&kind), "{line}");
                assert!(seen.insert(name), "{name} is in two places");
                family = (name.to_owned(), kind.to_owned());
                continue;
            }
            let (name, labels, value) = series_of(line);
            let suffix =
                name.strip_prefix(&family.0).unwrap_or_else(|| panic!("{line} is not of {family:?}"));
            let suffixes: &[&str] = if family.1 == "summary" { &["", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.contains(&suffix), "{line}");
            assert!(series.insert((name, labels), value).is_none(), "{line} is there twice");
        }
        assert!(text.ends_with('\n'));
        Page { text, series }
    }

    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let found = self.series.get(&key(name, labels));
        *found.unwrap_or_else(|| panic!("{name} {labels:?} is not in\n{}", self.text))
    }

    fn has(&self, name: &str, labels: &[(&str, &str)]) -> bool {
        self.series.contains_key(&key(name, labels))
    }

    fn sum(&self, name: &str) -> f64 {
        self.series.iter().filter(|((known, _), _)| known == name).map(|(_, value)| value).sum()
    }

    fn labels<'a>(&'a self, name: &'a str, label: &'a str) -> impl Iterator<Item = &'a str> {
        let of_it = self.series.keys().filter(move |(known, _)| known == name);
        of_it.filter_map(move |(_, labels)| labels.get(label).map(String::as_str))
    }
}

fn key(name: &str, labels: &[(&str, &str)]) -> (String, BTreeMap<String, String>) {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    (name.to_owned(), labels.collect())
}

/// True where a table has the series, with these labels at most.
fn described(name: &str, labels: &BTreeMap<String, String>) -> bool {
    let metrics = tarn_broker::metrics::tables().into_iter().flatten();
    let mut of_name = metrics.filter(|metric| {
        let suffix = name.strip_prefix(metric.name);
        suffix == Some("")
            || metric.kind == tarn_metrics::Kind::Summary && matches!(suffix, Some("_sum" | "_count"))
    });
    of_name.any(|metric| {
        labels.keys().all(|label| label == "quantile" || metric.labels.contains(&label.as_str()))
    })
}

fn series_of(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let name_end = line.find(['{', ' ']).unwrap_or_else(|| panic!("{line:?} has no value"));
    let (name, mut rest) = line.split_at(name_end);
    assert!(is_name(name), "{line:?}");
    let mut labels = BTreeMap::new();
    while let Some(label) = rest.strip_prefix(['{', ',']) {
        let (label, value) = label.split_once("=\"").unwrap_or_else(|| panic!("{line:?}"));
        assert!(is_name(label) && !label.contains(':'), "{line:?}");
        let (value, after) = unquoted(value).unwrap_or_else(|| panic!("{line:?} has an open quote"));
        assert!(labels.insert(label.to_owned(), value).is_none(), "{line:?}");
        rest = after;
    }
    let rest = if labels.is_empty() { Some(rest) } else { rest.strip_prefix('}') };
    let value = rest.and_then(|rest| rest.strip_prefix(' ')).unwrap_or_else(|| panic!("{line:?}"));
    (name.to_owned(), labels, value.parse().unwrap_or_else(|_| panic!("{line:?}")))
}

fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, one)) = chars.next() {
        match one {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                same @ ('\\' | '"') => same,
                _ => return None,
            }),
            other => value.push(other),
        }
    }
    None
}

fn is_name(name: &str) -> bool {
    let is_first = |one: char| one.is_ascii_alphabetic() || one == '_' || one == ':';
    name.starts_with(is_first) && name.chars().all(|one| is_first(one) || one.is_ascii_digit())
}
