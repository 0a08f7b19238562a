//! The text that Prometheus reads, version 0.0.4 of its format.
//!
//! Invariants:
//! * every line is of the format, whatever a label's value holds;
//! * all series of a metric follow each other, under its help and type, and a metric without series has no line.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Write};

use crate::description::{Kind, Metric};

/// An answer to a scrape, being written.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    written: BTreeSet<&'static str>,
}

/// The series of one metric, being written.
#[derive(Debug)]
pub struct Family<'a> {
    exposition: &'a mut Exposition,
    metric: &'static Metric,
}

/// A metric, and where its value is found in `T`.
pub type Column<T, V = u64> = (&'static Metric, fn(&T) -> V);

/// The value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A number without sign.
    Unsigned(u64),
    /// A whole number.
    Signed(i64),
    /// Any number.
    Real(f64),
}

/// A distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Quantiles, written as dashboards ask for them, and what share of the recent values lies at or below; none where
    /// nothing happened lately.
    pub quantiles: Vec<(&'static str, f64)>,
    /// All values since the start, added up.
    pub sum: f64,
    /// How many there were.
    pub count: u64,
}

impl Exposition {
    /// What an HTTP answer calls this format.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Begins a metric; each once.
    pub fn family(&mut self, metric: &'static Metric) -> Family<'_> {
        Family { exposition: self, metric }
    }

    /// Writes the only series of a metric.
    pub fn single(&mut self, metric: &'static Metric, value: impl Into<Value>) {
        self.family(metric).series(&[], value);
    }

    /// The text.
    pub fn finish(self) -> String {
        self.text
    }
}

impl Family<'_> {
    /// Writes a series; the labels in the order of the description, fewer where the last have no value.
    pub fn series(&mut self, labels: &[&str], value: impl Into<Value>) {
        self.begin();
        self.line("", labels, None, value.into());
    }

    /// Writes a distribution.
    pub fn summary(&mut self, labels: &[&str], summary: &Summary) {
        self.begin();
        for (quantile, value) in &summary.quantiles {
            self.line("", labels, Some(quantile), Value::Real(*value));
        }
        self.line("_sum", labels, None, Value::Real(summary.sum));
        self.line("_count", labels, None, Value::Unsigned(summary.count));
    }

    fn begin(&mut self) {
        let Metric { name, kind, help, .. } = self.metric;
        if self.exposition.written.insert(name) {
            let text = &mut self.exposition.text;
            text.push_str("# HELP ");
            text.push_str(name);
            text.push(' ');
            escape(text, help, Quotes::Kept);
            text.push_str("\n# TYPE ");
            text.push_str(name);
            text.push(' ');
            text.push_str(kind.name());
            text.push('\n');
        }
    }

    fn line(&mut self, suffix: &str, labels: &[&str], quantile: Option<&str>, value: Value) {
        debug_assert!(labels.len() <= self.metric.labels.len(), "{}: {labels:?}", self.metric.name);
        debug_assert!(quantile.is_none() || self.metric.kind == Kind::Summary, "{}", self.metric.name);
        let text = &mut self.exposition.text;
        text.push_str(self.metric.name);
        text.push_str(suffix);
        let named = self.metric.labels.iter().zip(labels).map(|(name, value)| (*name, *value));
        let quantile = quantile.map(|quantile| ("quantile", quantile));
        let mut before = '{';
        for (name, value) in named.chain(quantile).filter(|(_, value)| !value.is_empty()) {
            text.push(before);
            text.push_str(name);
            text.push_str("=\"");
            escape(text, value, Quotes::Escaped);
            text.push('"');
            before = ',';
        }
        if before == ',' {
            text.push('}');
        }
        writeln!(text, " {value}").expect("a text grows");
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    Kept,
    Escaped,
}

fn escape(text: &mut String, value: &str, quotes: Quotes) {
    for one in value.chars() {
        match one {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if quotes == Quotes::Escaped => text.push_str("\\\""),
            other => text.push(other),
        }
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Value::Unsigned(value) => write!(f, "{value}"),
            Value::Signed(value) => write!(f, "{value}"),
            Value::Real(value) if value.is_nan() => f.write_str("NaN"),
            Value::Real(f64::INFINITY) => f.write_str("+Inf"),
            Value::Real(f64::NEG_INFINITY) => f.write_str("-Inf"),
            Value::Real(value) => write!(f, "{value}"),
        }
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::Unsigned(value)
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Value {
        Value::Unsigned(value as u64)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Signed(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::Real(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Unsigned(u64::from(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::metrics! {
        /// Bytes, of "one" topic\or all.
        BYTES: Counter Bytes "bytes_total" ["topic", "partition"];
        /// Times.
        TIMES: Summary Milliseconds "times" ["request"];
        /// Level.
        LEVEL: Gauge Number "level" [];
    }

    #[test]
    fn series_of_a_metric_share_its_help_and_type() {
        let mut exposition = Exposition::default();
        let mut bytes = exposition.family(BYTES);
        bytes.series(&[], 9u64);
        bytes.series(&["orders", "0"], u64::MAX);
        exposition.single(LEVEL, -1i64);
        assert_eq!(
            exposition.finish(),
            "# HELP bytes_total Bytes, of \"one\" topic\\\\or all.\n# TYPE bytes_total counter\n\
             bytes_total 9\nbytes_total{topic=\"orders\",partition=\"0\"} 18446744073709551615\n\
             # HELP level Level.\n# TYPE level gauge\nlevel -1\n"
        );
    }

    #[test]
    fn a_value_of_a_label_cannot_end_its_line_or_its_quotes() {
        let mut exposition = Exposition::default();
        exposition.family(BYTES).series(&["a\"b\\c\nd", "é"], 1u64);
        let text = exposition.finish();
        assert_eq!(text.lines().last(), Some(r#"bytes_total{topic="a\"b\\c\nd",partition="é"} 1"#));
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn a_label_without_a_value_is_left_out() {
        let mut exposition = Exposition::default();
        let mut bytes = exposition.family(BYTES);
        bytes.series(&["", "7"], 1u64);
        bytes.series(&["", ""], 2u64);
        let text = exposition.finish();
        assert_eq!(
            text.lines().skip(2).collect::<Vec<_>>(),
            ["bytes_total{partition=\"7\"} 1", "bytes_total 2"]
        );
    }

    #[test]
    fn a_summary_has_quantiles_a_sum_and_a_count() {
        let mut exposition = Exposition::default();
        let quantiles = vec![("0.50", 1.5), ("0.999", f64::INFINITY)];
        let mut times = exposition.family(TIMES);
        times.summary(&["Produce"], &Summary { quantiles, sum: 12.25, count: 8 });
        times.summary(&["Fetch"], &Summary { quantiles: Vec::new(), sum: f64::NAN, count: 0 });
        assert_eq!(
            exposition.finish(),
            "# HELP times Times.\n# TYPE times summary\ntimes{request=\"Produce\",quantile=\"0.50\"} 1.5\n\
             times{request=\"Produce\",quantile=\"0.999\"} +Inf\ntimes_sum{request=\"Produce\"} 12.25\n\
             times_count{request=\"Produce\"} 8\ntimes_sum{request=\"Fetch\"} NaN\ntimes_count{request=\"Fetch\"} 0\n"
        );
    }

    #[test]
    fn a_metric_without_series_has_no_line() {
        let mut exposition = Exposition::default();
        exposition.family(BYTES);
        assert_eq!(exposition.finish(), "");
    }
}
