//! Kafka's tools and kcat print the same against Tarn as against Apache Kafka 4.4.

use crate::retention::{create, write_offsets};
use crate::side_by_side::SideBySide;
use std::collections::BTreeSet;
use std::path::Path;
use tarn_tests::dump;
use tarn_tests::golden::{Explained, Side, replaced};
use tarn_tests::raw::RawClient;
use tarn_tests::tools::tool;

const TOPICS: &str = "TopicCommand";
const CONFIGS: &str = "ConfigCommand";
const OFFSETS: &str = "GetOffsetShell";

#[test]
fn kafka_topics_prints_the_same() {
    let both = SideBySide::start();
    let topics = |arguments: &[&str]| both.tool(TOPICS, arguments, &[]);
    topics(&["--list"]);
    topics(&["--create", "--topic", "first", "--partitions", "3", "--replication-factor", "1"]);
    topics(&["--create", "--topic", "by.default"]);
    topics(&["--create", "--topic", "with.configs", "--partitions", "1", "--config", "retention.ms=3600000"]);
    topics(&["--create", "--topic", "assigned", "--replica-assignment", "1,1"]);
    topics(&["--create", "--topic", "first"]);
    topics(&["--create", "--topic", "first", "--if-not-exists"]);
    topics(&["--create", "--topic", "a name with spaces"]);
    topics(&["--create", "--topic", "zero", "--partitions", "0"]);
    topics(&["--create", "--topic", "three", "--replication-factor", "3"]);
    topics(&["--create", "--topic", "bad.config", "--config", "retention.ms=soon"]);
    topics(&["--create", "--topic", "unknown.config", "--config", "no.such.key=1"]);
    topics(&["--list"]);
    topics(&["--list", "--topic", "f.*"]);
    topics(&["--describe"]);
    topics(&["--describe", "--topic", "with.configs"]);
    topics(&["--describe", "--topic", "nothing"]);
    topics(&["--describe", "--under-replicated-partitions"]);
    topics(&["--alter", "--topic", "first", "--partitions", "5"]);
    topics(&["--alter", "--topic", "first", "--partitions", "2"]);
    topics(&["--describe", "--topic", "first"]);
    topics(&["--delete", "--topic", "by.default"]);
    topics(&["--delete", "--topic", "nothing"]);
    topics(&["--delete", "--topic", "nothing", "--if-exists"]);
    topics(&["--list"]);
}

#[test]
fn kafka_configs_prints_the_same_of_topics() {
    let both = SideBySide::start();
    both.tool(TOPICS, &["--create", "--topic", "t", "--partitions", "1"], &[]);
    let configs = |arguments: &[&str]| {
        let of_topics = [&["--entity-type", "topics"], arguments].concat();
        both.tool(CONFIGS, &of_topics, &[]);
    };
    configs(&["--describe", "--entity-name", "t"]);
    configs(&["--describe", "--entity-name", "t", "--all"]);
    configs(&["--alter", "--entity-name", "t", "--add-config", "retention.ms=1000,cleanup.policy=compact"]);
    configs(&["--describe", "--entity-name", "t"]);
    configs(&["--alter", "--entity-name", "t", "--add-config", "cleanup.policy=[compact,delete]"]);
    configs(&["--alter", "--entity-name", "t", "--delete-config", "retention.ms"]);
    configs(&["--describe", "--entity-name", "t", "--all"]);
    configs(&["--alter", "--entity-name", "t", "--add-config", "retention.ms=never"]);
    configs(&["--alter", "--entity-name", "t", "--add-config", "segment.bytes=1"]);
    configs(&["--alter", "--entity-name", "t", "--add-config", "no.such.key=1"]);
    configs(&["--alter", "--entity-name", "t", "--delete-config", "no.such.key"]);
    configs(&["--alter", "--entity-name", "nothing", "--add-config", "retention.ms=1000"]);
    configs(&["--describe", "--entity-name", "nothing"]);
    configs(&["--describe"]);
}

#[test]
fn producers_and_kafka_get_offsets_print_the_same() {
    let both = SideBySide::start();
    both.tool(TOPICS, &["--create", "--topic", "t", "--partitions", "2"], &[]);
    both.tool(TOPICS, &["--create", "--topic", "empty", "--partitions", "1"], &[]);
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        both.tool_with_input(
            "ConsoleProducer",
            &[
                "--topic",
                "t",
                "--compression-codec",
                codec,
                "--reader-property",
                "parse.key=true",
                "--reader-property",
                "key.separator=:",
            ],
            Some(b"a:1\nb:2\nc:3\nd:4\n"),
            &[],
        );
    }
    let far = ["--topic", "no.such.topic", "--command-property", "max.block.ms=1000"];
    both.tool_with_input(
        "ConsoleProducer",
        &[&far[..], &["--command-property", "acks=0"]].concat(),
        None,
        &[],
    );
    let measured = ["--topic", "t", "--num-records", "5000", "--record-size", "100", "--throughput", "-1"];
    both.compare(
        "ProducerPerformance",
        |bootstrap| {
            tool("ProducerPerformance", &[&["--bootstrap-server", bootstrap], &measured[..]].concat())
        },
        // Speeds and latencies differ from run to run; the last line counts all records.
        |text| {
            let last: Vec<&str> = text.lines().filter(|line| line.starts_with("5000 records")).collect();
            replaced(&last.join("\n"), r"[\d.]+ (records/sec|MB/sec|ms)", "N $1")
        },
        &[],
    );
    for time in
        ["earliest", "latest", "max-timestamp", "earliest-local", "latest-tiered", "0", "4102444800000"]
    {
        // The sticky partitioner of the tool without keys goes where it likes: only the sum is fixed.
        both.compare(
            &format!("GetOffsetShell --time {time}"),
            |bootstrap| tool(OFFSETS, &["--bootstrap-server", bootstrap, "--time", time]),
            |text| with_sum(&text, time),
            &[],
        );
    }
    both.tool(OFFSETS, &["--topic-partitions", "empty:0-5,t:0", "--time", "earliest"], &[]);
    both.tool(OFFSETS, &["--topic", "nothing"], &[]);
}

#[test]
fn kafka_delete_records_prints_the_same() {
    let both = SideBySide::start();
    for (topic, policy) in [("t", "delete"), ("compacted", "compact"), ("for.ever", "")] {
        let policy = format!("cleanup.policy={policy}");
        for bootstrap in [both.kafka.bootstrap(), both.tarn.bootstrap()] {
            create(&mut RawClient::connect(&bootstrap), topic, &[&policy]);
        }
        both.kcat(&["-P", "-t", topic, "-p", "0", "-K:"], Some(b"a:1\nb:2\nc:3\nd:4\n"), &[]);
    }
    let file = tempfile::NamedTempFile::new().expect("there is room");
    let path = file.path().display().to_string();
    for offsets in [
        &[("t", 2)][..],
        &[("t", 1)],
        &[("t", 5)],
        &[("t", -2)],
        &[("compacted", 1)],
        &[("for.ever", 1)],
        &[("t", -1)],
    ] {
        write_offsets(file.path(), offsets);
        both.compare(
            &format!("DeleteRecordsCommand {offsets:?}"),
            |bootstrap| {
                tool("DeleteRecordsCommand", &["--bootstrap-server", bootstrap, "--offset-json-file", &path])
            },
            |text| replaced(&text, r"adminclient-\d+", "adminclient-N"),
            &[],
        );
        both.tool(OFFSETS, &["--time", "earliest"], &[]);
    }
    both.kcat(&["-C", "-t", "t", "-p", "0", "-o", "0", "-e", "-X", "auto.offset.reset=error"], None, &[]);
}

#[test]
fn kafka_log_dirs_prints_the_same() {
    let both = SideBySide::start();
    both.tool(TOPICS, &["--create", "--topic", "t", "--partitions", "3"], &[]);
    both.tool(TOPICS, &["--create", "--topic", "empty", "--partitions", "1"], &[]);
    both.kcat(&["-P", "-t", "t", "-p", "1"], Some(b"1\n2\n"), &[]);
    for more in [
        &[][..],
        &["--topic-list", "t"],
        &["--topic-list", "nothing"],
        &["--broker-list", "1"],
        &["--broker-list", "7"],
    ] {
        both.compare(
            &format!("LogDirsCommand {}", more.join(" ")),
            |bootstrap| {
                tool("LogDirsCommand", &[&["--bootstrap-server", bootstrap, "--describe"], more].concat())
            },
            sizes_as_words,
            &[],
        );
    }
}

#[test]
fn kafka_broker_api_versions_prints_the_same() {
    let both = SideBySide::start();
    both.compare(
        "BrokerApiVersionsCommand",
        |bootstrap| tool("BrokerApiVersionsCommand", &["--bootstrap-server", bootstrap]),
        // Only the last entry has no comma; what is not served has a line in the tool's list all the same.
        |text| replaced(&text.replace(",\n", "\n"), r"(?m)^\t\w+\(\d+\): UNSUPPORTED\n", ""),
        API_DIFFERENCES,
    );
}

#[test]
fn kafka_metadata_quorum_prints_the_same() {
    let both = SideBySide::start();
    for subcommand in ["list-endpoints", "cluster-id"] {
        both.compare(
            &format!("ClusterTool {subcommand}"),
            |bootstrap| {
                // A subcommand comes first.
                let said = tool("ClusterTool", &[subcommand, "--bootstrap-server", bootstrap]);
                assert_eq!(said.code, Some(0), "{said:?}");
                said
            },
            |text| replaced(&text, r"127\.0\.0\.1 \d+", "ADDRESS"),
            &[],
        );
    }
    for describe in [&["describe", "--status"][..], &["describe", "--replication"]] {
        both.compare(
            &format!("MetadataQuorumCommand {}", describe.join(" ")),
            |bootstrap| {
                tool("MetadataQuorumCommand", &[&["--bootstrap-server", bootstrap], describe].concat())
            },
            |text| counts_as_words(&text),
            &[],
        );
    }
    both.compare(
        "MetadataQuorumCommand through the controller",
        |bootstrap| {
            let controller = if bootstrap == both.kafka.bootstrap() {
                both.kafka.controller()
            } else {
                both.tarn.controller()
            };
            tool("MetadataQuorumCommand", &["--bootstrap-controller", &controller, "describe", "--status"])
        },
        |text| counts_as_words(&text),
        &[],
    );
}

#[test]
fn kcat_prints_the_same_by_partition() {
    let both = SideBySide::start();
    both.tool(TOPICS, &["--create", "--topic", "t", "--partitions", "2"], &[]);
    // Long enough to become smaller: else librdkafka does not compress.
    let lines = format!("k1:{}\nk2:v2\nk3:\n", "v1".repeat(200));
    let lines = lines.as_bytes();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        both.kcat(&["-P", "-t", "t", "-p", "1", "-K:", "-z", codec], Some(lines), &[]);
    }
    // A client compresses only what it believes the broker to understand, and may say nothing about it.
    let [at_kafka, at_tarn] = [both.kafka.data(), both.tarn.data()].map(|data| codecs_in(&data.join("t-1")));
    assert_eq!(at_tarn, ["GZIP", "LZ4", "NONE", "SNAPPY", "ZSTD"].map(String::from).into());
    assert_eq!(at_kafka, at_tarn);
    both.kcat(
        &["-P", "-t", "t", "-p", "1", "-Z", "-K:", "-H", "h=1", "-H", "h=2", "-X", "acks=1"],
        Some(lines),
        &[],
    );
    both.kcat(&["-P", "-t", "t", "-p", "0", "-X", "enable.idempotence=true"], Some(b"idempotent\n"), &[]);
    both.kcat(&["-P", "-t", "t", "-p", "7", "-X", "message.timeout.ms=1000"], Some(b"nowhere\n"), &[]);
    let format = "%t-%p at %o, %K %k, %S %s, headers %h\n";
    both.kcat(&["-C", "-t", "t", "-p", "1", "-o", "beginning", "-e", "-f", format], None, &[]);
    both.kcat(&["-C", "-t", "t", "-p", "1", "-o", "-2", "-e", "-f", format], None, &[]);
    both.kcat(&["-C", "-t", "t", "-p", "1", "-o", "4", "-c", "3", "-f", format], None, &[]);
    both.kcat(&["-C", "-t", "t", "-p", "0", "-o", "99", "-e", "-f", format], None, &[]);
    both.kcat(
        &["-C", "-t", "t", "-p", "0", "-o", "beginning", "-e", "-X", "isolation.level=read_committed"],
        None,
        &[],
    );
    both.kcat(&["-Q", "-t", "t:1:-1", "-t", "t:1:-2", "-t", "t:0:0"], None, &[]);
    both.kcat(&["-L"], None, &[]);
    both.kcat(&["-L", "-t", "t"], None, &[]);
}

/// The codecs of the batches of a partition.
fn codecs_in(partition: &Path) -> BTreeSet<String> {
    let dumped = dump::records(&dump::files_with(partition, "log"));
    let batches = dumped.lines().filter(|line| line.starts_with("baseOffset:"));
    let codec = |line: &str| Some(line.split_once("compresscodec: ")?.1.split(' ').next()?.to_uppercase());
    batches.filter_map(codec).collect()
}

/// What Tarn does not serve yet, and what only Tarn serves.
const API_DIFFERENCES: &[Explained] = &[
    Explained {
        side: Side::Tarn,
        line: r"\tUNKNOWN\(10\d\d\d\): .*",
        why: "the APIs of cluster mirroring, which this Kafka does not know (KIP-1279)",
    },
    Explained {
        side: Side::Kafka,
        line: r"\t(OffsetCommit|OffsetFetch|JoinGroup|Heartbeat|LeaveGroup|SyncGroup|DescribeGroups|ListGroups|DeleteGroups|OffsetDelete|ConsumerGroupHeartbeat|ConsumerGroupDescribe)\(\d+\): .*",
        why: "groups are not built yet",
    },
    Explained {
        side: Side::Kafka,
        line: r"\t(AddPartitionsToTxn|AddOffsetsToTxn|EndTxn|TxnOffsetCommit|DescribeTransactions|ListTransactions)\(\d+\): .*",
        why: "transactions are not built yet",
    },
    Explained {
        side: Side::Kafka,
        line: r"\t(Share\w+|\w+Share\w+|Streams\w+)\(\d+\): .*",
        why: "share and streams groups are not built yet",
    },
    Explained {
        side: Side::Kafka,
        line: r"\t(SaslHandshake|SaslAuthenticate|DescribeAcls|CreateAcls|DeleteAcls|\w+DelegationToken|\w+UserScramCredentials|\w+ClientQuotas)\(\d+\): .*",
        why: "security and quotas are not built yet",
    },
    Explained {
        side: Side::Kafka,
        line: r"\t(AlterReplicaLogDirs|ElectLeaders|AlterPartitionReassignments|ListPartitionReassignments|UnregisterBroker|UnregisterController|AddRaftVoter|RemoveRaftVoter|GetTelemetrySubscriptions|PushTelemetry|AssignReplicasToDirs|GetReplicaLogInfo)\(\d+\): .*",
        why: "not built yet",
    },
];

/// What kafka-log-dirs says, with sizes and paths as words: one partition a line, in order.
fn sizes_as_words(text: String) -> String {
    let text = replaced(&text, r#""logDir":"[^"]*""#, r#""logDir":"PATH""#);
    let text = replaced(&text, r#""(totalBytes|usableBytes)":\d+"#, r#""$1":N"#);
    // The batches of two librdkafkas may differ, but what is empty is so in both.
    let text = replaced(&text, r#""size":[1-9]\d*"#, r#""size":N"#);
    let mut lines: Vec<String> =
        text.replace("{\"partition\"", "\n{\"partition\"").lines().map(String::from).collect();
    lines.sort();
    lines.join("\n").replace("},\n", "}\n")
}

/// Offsets and lags of the metadata log, and times, as words.
fn counts_as_words(text: &str) -> String {
    let text =
        replaced(text, r"(?m)^(LeaderEpoch|HighWatermark|MaxFollowerLagTimeMs):(\s+)-?\d+$", "$1:${2}N");
    let text = replaced(&text, r#""id": (\d+), "directoryId": (null|"[^"]*")"#, "\"id\": $1, DIRECTORY");
    // NodeId, DirectoryId, LogEndOffset, Lag, LastFetchTimestamp, LastCaughtUpTimestamp, Status.
    replaced(
        &text,
        r"(?m)^(\d+)\s+[A-Za-z0-9_-]{22}\s+\d+\s+(\d+)\s+\S+\s+\S+\s+(\w+)\s*$",
        "$1 DIRECTORY N $2 T T $3",
    )
}

/// The line for `empty` and the sum over the partitions of `t`.
fn with_sum(text: &str, time: &str) -> String {
    let offset = |line: &str| line.rsplit(':').next().and_then(|offset| offset.parse::<i64>().ok());
    let sum: i64 = text.lines().filter(|line| line.starts_with("t:")).filter_map(offset).sum();
    let others: Vec<&str> = text.lines().filter(|line| !line.starts_with("t:")).collect();
    // The newest record is in whichever partition came last.
    let sum = if time == "max-timestamp" { "some offset".into() } else { sum.to_string() };
    format!("{}\nt: {sum}", others.join("\n"))
}
