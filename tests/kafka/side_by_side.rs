//! Apache Kafka and Tarn, both new and empty, given the same commands.

use tarn_tests::golden::{Explained, assert_same, in_words, replaced};
use tarn_tests::kafka::{KafkaNode, NodeOptions};
use tarn_tests::process::Finished;
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::{kcat, tool, tool_with_input};

/// Features that Tarn does not serve yet. Kafka is formatted without them, so that its tools take the
/// same ways against both.
const FEATURES_OFF: [&str; 5] = [
    "eligible.leader.replicas.version=0",
    "group.version=0",
    "share.version=0",
    "streams.version=0",
    "transaction.version=0",
];

/// One of either.
pub(crate) struct SideBySide {
    /// Apache Kafka.
    pub(crate) kafka: KafkaNode,
    /// Tarn.
    pub(crate) tarn: Tarn,
}

impl SideBySide {
    /// Starts both.
    pub(crate) fn start() -> SideBySide {
        SideBySide::start_with(&[])
    }

    /// `start`, with further properties of Kafka's.
    pub(crate) fn start_with(of_kafka: &[(&str, &str)]) -> SideBySide {
        SideBySide::start_each_with(of_kafka, &[])
    }

    /// `start`, with further properties of each.
    pub(crate) fn start_each_with(of_kafka: &[(&str, &str)], of_tarn: &[(&str, &str)]) -> SideBySide {
        let owned = |properties: &[(&str, &str)]| {
            properties.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
        };
        let kafka = NodeOptions {
            features: FEATURES_OFF.iter().map(|feature| (*feature).to_string()).collect(),
            properties: owned(of_kafka),
            ..NodeOptions::default()
        };
        let tarn = TarnOptions { properties: owned(of_tarn), ..TarnOptions::default() };
        SideBySide { kafka: KafkaNode::start(&kafka), tarn: Tarn::start(&tarn) }
    }

    /// Runs a tool against both and compares what it printed.
    pub(crate) fn tool(&self, class: &str, arguments: &[&str], explained: &[Explained]) {
        self.tool_with_input(class, arguments, None, explained);
    }

    /// `tool`, with standard input.
    pub(crate) fn tool_with_input(
        &self,
        class: &str,
        arguments: &[&str],
        input: Option<&[u8]>,
        explained: &[Explained],
    ) {
        let what = format!("{class} {}", arguments.join(" "));
        let run = |bootstrap: &str| {
            let all = [&["--bootstrap-server", bootstrap], arguments].concat();
            match input {
                Some(_) => tool_with_input(class, &all, input),
                None => tool(class, &all),
            }
        };
        self.compare(&what, run, |text| text, explained);
    }

    /// Runs kcat against both and compares what it printed.
    pub(crate) fn kcat(&self, arguments: &[&str], input: Option<&[u8]>, explained: &[Explained]) {
        let what = format!("kcat {}", arguments.join(" "));
        let run = |bootstrap: &str| kcat(&[&["-b", bootstrap], arguments].concat(), input);
        self.compare(&what, run, |text| without_retries(&text), explained);
    }

    /// Runs anything against both, and compares what `words` makes of the outputs.
    pub(crate) fn compare(
        &self,
        what: &str,
        run: impl Fn(&str) -> Finished,
        words: impl Fn(String) -> String,
        explained: &[Explained],
    ) {
        let kafka = words(in_words(&run(&self.kafka.bootstrap())));
        let tarn = words(in_words(&run(&self.tarn.bootstrap())));
        assert_same(what, &kafka, &tarn, explained);
    }
}

/// A new Kafka is busy loading when the first producer asks for an id; librdkafka says so and asks again.
fn without_retries(text: &str) -> String {
    let text = replaced(text, r"(?m)^.*Coordinator load in progress: retrying\n", "");
    replaced(&text, r"%(\d)\|\d+\.\d+\|", "%$1|SECONDS|")
}
