//! The reference page of metrics says what the tables say: `docs/metrics.md` is written from them, by this test with
//! `TARN_WRITE_DOCS=1`, and compared with them otherwise. And names follow the JMX exporter's rules.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use tarn_broker::metrics::tables;
use tarn_metrics::{Kind, Metric, Unit};

const PAGE: &str = "../docs/metrics.md";

const HEAD: &str = "\
# Metrics

Written from the tables `metrics!` in the crates; a test compares.

With `tarn.admin.listener=127.0.0.1:9404` in its `server.properties` a node answers `GET /metrics` in the text format
of Prometheus (0.0.4), `GET /healthz` while the process lives, and `GET /readyz` while it serves. Whoever reaches the
port may read all of it; nothing can be changed there. In Prometheus:

    scrape_configs:
      - job_name: tarn
        static_configs:
          - targets: ['127.0.0.1:9404']

**Names.** What Apache Kafka has is named as the Prometheus JMX exporter names Kafka's beans with the example
configuration that comes with it, `examples/kafka-kraft-3_0_0.yml`: `kafka_<domain>_<type>_<name>` in lower case,
`PerSec` becoming `_total` and quantiles a label. So dashboards that were made for that keep working. The sockets'
metrics, for which that file has no rule, are named as Strimzi's `kafka-metrics.yaml` names them. Names of KIP-1279
are formed alike. What only Tarn has begins with `tarn_`.

**Sums and series.** A series without a label `topic` is of all topics, as in Kafka; sum over `topic!=\"\"` or take the
one without. A node with more topics with traffic than `tarn.metrics.topics.max`, or more partitions than
`tarn.metrics.partitions.max`, tells the sums alone; `tarn_topics_with_series` and `tarn_partitions_with_series` are
then 0.

**Limits.** `tarn_limit{name=...}` and `tarn_used{name=...}` are pairs; `tarn_used / tarn_limit` is how near a node is
to refusing or slowing somebody down. `descriptors` and `memory_maps` are those of the process, `segment_descriptors` the
share of the former for segments; `cold_reads` beyond their limit wait for one of its threads.

**Times of requests.** `totaltimems` ends when the answer is handed to its connection. Of Kafka's parts of it there are
two: `localtimems` and, for fetches, `remotetimems`. The others would mean something else here: a request waits in no
queue, for whoever reads it serves it, and answers leave in their order when the socket takes them.

**A scrape** is made beside the cores, one at a time; those who ask meanwhile share the next. `/healthz` and `/readyz` do not
wait for it. Directories are told as they are, where the exporter keeps the quotes of a bean's name around them.

**Quantiles** are of the last five to six minutes and right to an eighth; `_sum` and `_count` are since the start.
";

#[test]
fn the_reference_page_is_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = page();
    if std::env::var_os("TARN_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("docs/ can be written");
    }
    let written = std::fs::read_to_string(&path).expect("docs/metrics.md is there");
    let differs = written.lines().zip(page.lines()).find(|(written, right)| written != right);
    assert_eq!(differs, None, "write it anew with TARN_WRITE_DOCS=1");
    assert_eq!(written.len(), page.len(), "write it anew with TARN_WRITE_DOCS=1");
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    let all: Vec<&Metric> = tables().into_iter().flatten().copied().collect();
    let (of_kafka, own): (Vec<_>, Vec<_>) = all.into_iter().partition(|metric| metric.jmx.is_some());
    let (of_mirrors, own): (Vec<_>, Vec<_>) =
        own.into_iter().partition(|metric| metric.name.contains("mirror"));
    let (of_mirroring, of_kafka): (Vec<_>, Vec<_>) =
        of_kafka.into_iter().partition(|metric| metric.name.contains("mirror"));
    section(&mut page, "Kafka's", &of_kafka);
    section(&mut page, "KIP-1279's", &of_mirroring);
    section(&mut page, "Mirroring, Tarn's own", &of_mirrors);
    section(&mut page, "The rest", &own);
    page
}

fn section(page: &mut String, title: &str, metrics: &[&Metric]) {
    let with_jmx = metrics.iter().any(|metric| metric.jmx.is_some());
    let (head, line) = if with_jmx { (" Kafka's bean |", "---|") } else { ("", "") };
    write!(
        page,
        "\n## {title}\n\n| name | type | unit | labels | what it is |{head}\n|---|---|---|---|---|{line}\n"
    )
    .expect("a text grows");
    for metric in metrics {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let Metric { name, kind, unit, help, .. } = metric;
        let (kind, unit, labels) = (kind.name(), unit.name(), labels.join(", "));
        write!(page, "| `{name}` | {kind} | {unit} | {labels} | {help} |").expect("a text grows");
        if let Some(jmx) = metric.jmx {
            write!(page, " `{jmx}` |").expect("a text grows");
        }
        page.push('\n');
    }
}

#[test]
fn what_kafka_has_is_named_as_the_exporters_example_names_it() {
    let mut checked = 0;
    for metric in tables().into_iter().flatten() {
        let Some(jmx) = metric.jmx else { continue };
        let (domain, keys) = jmx.split_once(':').expect("a bean has a domain");
        let key = |name: &str| keys.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let domain = domain.replace('.', "_");
        let kind = key("type").expect("a bean has a type").replace('-', "_");
        let prefix = match key("name") {
            Some(name) => match name.strip_suffix("PerSec") {
                Some(name) => format!("{domain}_{kind}_{name}_total"),
                None => format!("{domain}_{kind}_{name}"),
            },
            // Its attributes are metrics.
            None => format!("{domain}_{kind}_"),
        }
        .to_lowercase()
        .replace('-', "_");
        let is_named =
            if key("name").is_some() { metric.name == prefix } else { metric.name.starts_with(&prefix) };
        assert!(is_named, "{jmx} is {}, not {prefix}", metric.name);
        checked += 1;
    }
    assert!(checked > 30, "the tables are found");
}

#[test]
fn names_and_descriptions_follow_the_rules_of_prometheus() {
    let mut names = BTreeSet::new();
    for metric in tables().into_iter().flatten() {
        let Metric { name, kind, unit, help, .. } = metric;
        assert!(names.insert(name), "{name} is there twice");
        assert!(
            name.chars().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '_'),
            "{name}"
        );
        assert_eq!(*kind == Kind::Counter, name.ends_with("_total"), "{name} is a {}", kind.name());
        assert!(help.ends_with('.') && help.len() > 10 && !help.contains('|'), "{name}: {help}");
        let suffix = match unit {
            Unit::Bytes if metric.jmx.is_none() => "_bytes",
            Unit::Milliseconds if metric.jmx.is_none() => "_ms",
            Unit::Seconds if metric.jmx.is_none() => "_seconds",
            _ => continue,
        };
        assert!(name.contains(suffix) || name.contains("bytes_"), "{name} is in {}", unit.name());
    }
}
