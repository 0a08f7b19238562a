//! The description of a metric: what a scrape, the reference page and a dashboard know it by.

/// One metric, which has a series for each combination of its labels.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name in the text format.
    pub name: &'static str,
    /// How its value moves.
    pub kind: Kind,
    /// What it counts.
    pub unit: Unit,
    /// The names of its labels. A label without a value is left out.
    pub labels: &'static [&'static str],
    /// Where Apache Kafka has it: the name of its JMX bean.
    pub jmx: Option<&'static str>,
    /// What it is, in a sentence.
    pub help: &'static str,
}

/// How a value moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only rises, from 0 at the start of the process.
    Counter,
    /// It rises and falls.
    Gauge,
    /// Quantiles, a sum and a count.
    Summary,
}

/// What a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things, which the name says.
    Number,
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Hundredths of something.
    Percent,
    /// 1 for yes, 0 for no.
    Truth,
}

impl Kind {
    /// The word of the text format.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Summary => "summary",
        }
    }
}

impl Unit {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Number => "number",
            Unit::Bytes => "bytes",
            Unit::Milliseconds => "milliseconds",
            Unit::Seconds => "seconds",
            Unit::Percent => "percent",
            Unit::Truth => "0 or 1",
        }
    }
}

/// A table of metrics: one doc comment, which is the help, and one line for each. Makes a constant of each and the
/// list `METRICS` of all.
#[macro_export]
macro_rules! metrics {
    ($(
        #[doc = $first:literal] $(#[doc = $more:literal])*
        $constant:ident: $kind:ident $unit:ident $name:literal [$($label:literal),*] $(, jmx $jmx:literal)?;
    )*) => {
        $(
            #[doc = $first] $(#[doc = $more])*
            #[allow(unreachable_pub)]
            pub const $constant: &$crate::Metric = &$crate::Metric {
                name: $name,
                kind: $crate::Kind::$kind,
                unit: $crate::Unit::$unit,
                labels: &[$($label),*],
                jmx: $crate::metrics!(@optional $($jmx)?),
                help: concat!($first $(, $more)*).trim_ascii(),
            };
        )*

        /// Every metric of this table.
        #[allow(unreachable_pub, dead_code)]
        pub const METRICS: &[&$crate::Metric] = &[$($constant),*];
    };
    (@optional) => { None };
    (@optional $value:literal) => { Some($value) };
}

#[cfg(test)]
mod tests {
    use super::*;

    metrics! {
        /// How often it happened,
        /// whatever it is.
        HAPPENED: Counter Number "it_happened_total" ["where", "why"], jmx "a:type=B,name=CPerSec";
        /// How much there is.
        LEVEL: Gauge Bytes "level_bytes" [];
    }

    #[test]
    fn a_table_makes_constants_and_a_list_of_them() {
        assert_eq!(METRICS, [HAPPENED, LEVEL]);
        assert_eq!(HAPPENED.help, "How often it happened, whatever it is.");
        assert_eq!((HAPPENED.labels, HAPPENED.jmx), (&["where", "why"][..], Some("a:type=B,name=CPerSec")));
        assert_eq!((LEVEL.kind, LEVEL.unit, LEVEL.jmx), (Kind::Gauge, Unit::Bytes, None));
    }
}
