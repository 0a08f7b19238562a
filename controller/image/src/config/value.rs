//! What a configuration value may be: its type, its range, and how it is read and written.
//!
//! Values travel as text, in requests, records and files. Here text becomes the canonical text of its
//! type, or a refusal in the words that Kafka's tools print. Nothing here knows a key by name.

use std::fmt;

use tarn_wire::limits::STRING_BYTES_MAX;

/// The type of a value; the numbers are those of DescribeConfigs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigType {
    /// `true` or `false`.
    Boolean = 1,
    /// Any text.
    String = 2,
    /// A 32-bit number.
    Int = 3,
    /// A 16-bit number.
    Short = 4,
    /// A 64-bit number.
    Long = 5,
    /// A floating-point number.
    Double = 6,
    /// Texts separated by commas.
    List = 7,
    /// The name of a Java class.
    Class = 8,
    /// A secret: never shown.
    Password = 9,
}

impl ConfigType {
    /// The number in DescribeConfigs.
    pub fn id(self) -> i8 {
        self as i8
    }

    /// True where values are never shown.
    pub fn is_sensitive(self) -> bool {
        self == ConfigType::Password
    }
}

impl fmt::Display for ConfigType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConfigType::Boolean => "BOOLEAN",
            ConfigType::String => "STRING",
            ConfigType::Int => "INT",
            ConfigType::Short => "SHORT",
            ConfigType::Long => "LONG",
            ConfigType::Double => "DOUBLE",
            ConfigType::List => "LIST",
            ConfigType::Class => "CLASS",
            ConfigType::Password => "PASSWORD",
        })
    }
}

/// What a value must satisfy beyond its type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Nothing.
    Any,
    /// A number not below this one.
    AtLeast(i64),
    /// A number from the first to the second.
    Between(i64, i64),
    /// A gzip level: 1 to 9, or -1 for the default.
    GzipLevel,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// One of these texts, in capitals or not.
    OneOfAnyCase(&'static [&'static str]),
    /// Each element one of these texts.
    ListOf(&'static [&'static str]),
    /// Not the empty text.
    NonEmpty,
    /// `partition:broker` pairs, or `*`.
    ThrottledReplicas,
    /// `host:count` pairs.
    HostCounts,
}

/// Reads `text` as a `kind` that satisfies `rule`, and gives the text that Kafka would show for it.
///
/// # Errors
/// What is wrong, without the key: "Not a number of type INT", "Value must be at least 1".
pub fn canonical(kind: ConfigType, rule: Rule, text: &str) -> Result<String, Refusal> {
    let trimmed = text.trim();
    check_length(trimmed)?;
    let refuse = |why: String| Refusal { shown: trimmed.to_owned(), why };
    let value = match kind {
        ConfigType::Boolean if trimmed.eq_ignore_ascii_case("true") => "true".to_owned(),
        ConfigType::Boolean if trimmed.eq_ignore_ascii_case("false") => "false".to_owned(),
        ConfigType::Boolean => return Err(refuse("Expected value to be either true or false".to_owned())),
        ConfigType::Int | ConfigType::Short | ConfigType::Long => {
            let number = whole_number(kind, trimmed)
                .ok_or_else(|| refuse(format!("Not a number of type {kind}")))?
                .to_string();
            check_number(rule, &number).map_err(|why| Refusal { shown: number.clone(), why })?;
            return Ok(number);
        }
        ConfigType::Double => {
            let number: f64 =
                trimmed.parse().map_err(|_| refuse("Not a number of type DOUBLE".to_owned()))?;
            let shown = java_double(number);
            check_number(rule, &shown).map_err(|why| Refusal { shown: shown.clone(), why })?;
            return Ok(shown);
        }
        ConfigType::List => elements(text).join(","),
        ConfigType::String | ConfigType::Class | ConfigType::Password => trimmed.to_owned(),
    };
    check_text(rule, &value)?;
    Ok(value)
}

/// Why a value is refused, and the value as the refusal shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The value, or the element of it, that is wrong.
    pub shown: String,
    /// What is wrong with it.
    pub why: String,
}

impl Refusal {
    /// The sentence that Kafka's tools print.
    pub fn of(&self, key: &str) -> String {
        format!("Invalid value {} for configuration {key}: {}", self.shown, self.why)
    }
}

/// The elements of a list value, trimmed; the empty text has none.
pub fn elements(text: &str) -> Vec<&str> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    text.split(',').map(str::trim).collect()
}

fn whole_number(kind: ConfigType, text: &str) -> Option<i64> {
    match kind {
        ConfigType::Int => text.parse::<i32>().ok().map(i64::from),
        ConfigType::Short => text.parse::<i16>().ok().map(i64::from),
        _ => text.parse().ok(),
    }
}

/// The text of `Double.toString`: at least one digit after the point, exponents from 10^7 on.
fn java_double(number: f64) -> String {
    if number == 0.0 || (1e-3..1e7).contains(&number.abs()) {
        return format!("{number:?}");
    }
    let text = format!("{number:E}");
    match text.split_once('E') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0E{exponent}"),
        _ => text,
    }
}

fn check_number(rule: Rule, shown: &str) -> Result<(), String> {
    let below = |bound: i64| match shown.parse::<i64>() {
        Ok(whole) => whole < bound,
        Err(_) => shown.parse::<f64>().is_ok_and(|number| number < bound as f64),
    };
    let above = |bound: i64| match shown.parse::<i64>() {
        Ok(whole) => whole > bound,
        Err(_) => shown.parse::<f64>().is_ok_and(|number| number > bound as f64),
    };
    match rule {
        Rule::AtLeast(least) if below(least) => Err(format!("Value must be at least {least}")),
        Rule::Between(least, _) if below(least) => Err(format!("Value must be at least {least}")),
        Rule::Between(_, most) if above(most) => Err(format!("Value must be no more than {most}")),
        Rule::GzipLevel if shown != "-1" && (below(1) || above(9)) => {
            Err("Value must be between 1 and 9 or equal to -1".to_owned())
        }
        _ => Ok(()),
    }
}

/// A longer value fits no record of the metadata and no answer to a client.
fn check_length(text: &str) -> Result<(), Refusal> {
    if text.len() <= STRING_BYTES_MAX {
        return Ok(());
    }
    let shown = format!("{}…", &text[..text.floor_char_boundary(SHOWN_BYTES)]);
    let why = format!("It is {} bytes long; values have 0 to {STRING_BYTES_MAX} bytes", text.len());
    Err(Refusal { shown, why })
}

/// What is shown of a value that is too long.
const SHOWN_BYTES: usize = 32;

fn check_text(rule: Rule, value: &str) -> Result<(), Refusal> {
    let one_of = |shown: &str, allowed: &[&str]| {
        Err(Refusal {
            shown: shown.to_owned(),
            why: format!("String must be one of: {}", allowed.join(", ")),
        })
    };
    match rule {
        Rule::OneOf(allowed) if !allowed.contains(&value) => one_of(value, allowed),
        Rule::OneOfAnyCase(allowed) if !allowed.iter().any(|name| name.eq_ignore_ascii_case(value)) => {
            Err(Refusal {
                shown: value.to_owned(),
                why: format!("String must be one of (case insensitive): {}", allowed.join(", ")),
            })
        }
        Rule::ListOf(allowed) => match elements(value).into_iter().find(|one| !allowed.contains(one)) {
            Some(stranger) => one_of(stranger, allowed),
            None => Ok(()),
        },
        Rule::NonEmpty if value.is_empty() => {
            Err(Refusal { shown: String::new(), why: "String must be non-empty".to_owned() })
        }
        Rule::ThrottledReplicas if !are_throttled_replicas(value) => Err(Refusal {
            shown: format!("[{}]", elements(value).join(", ")),
            why: "must be the literal '*' or a list of replicas in the following format: \
                  [partitionId]:[brokerId],[partitionId]:[brokerId],..."
                .to_owned(),
        }),
        Rule::HostCounts if host_counts(value).is_none() => Err(Refusal {
            shown: value.to_owned(),
            why: "must be a comma separated list of hosts, each with how many it may have: host:count"
                .to_owned(),
        }),
        _ => Ok(()),
    }
}

/// The pairs of a list `host:count`, whose counts are not negative; `None` where it is none. What stands before the last
/// colon is the host, which may be an IPv6 address.
pub fn host_counts(text: &str) -> Option<Vec<(&str, usize)>> {
    elements(text).into_iter().filter(|one| !one.is_empty()).map(host_count).collect()
}

fn host_count(pair: &str) -> Option<(&str, usize)> {
    let (host, count) = pair.rsplit_once(':')?;
    let count = usize::try_from(count.trim().parse::<i32>().ok()?).ok()?;
    Some((host.trim(), count)).filter(|(host, _)| !host.is_empty())
}

fn are_throttled_replicas(value: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    value == "*"
        || elements(value).iter().all(|pair| {
            pair.split_once(':').is_some_and(|(partition, broker)| number(partition) && number(broker))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_refused_in_kafkas_words() {
        let refused = |kind, rule, text| canonical(kind, rule, text).unwrap_err().of("k");
        assert_eq!(
            refused(ConfigType::Long, Rule::AtLeast(-1), "x"),
            "Invalid value x for configuration k: Not a number of type LONG"
        );
        assert_eq!(
            refused(ConfigType::Int, Rule::AtLeast(1), "99999999999"),
            "Invalid value 99999999999 for configuration k: Not a number of type INT"
        );
        assert_eq!(
            refused(ConfigType::Double, Rule::Between(0, 1), "2"),
            "Invalid value 2.0 for configuration k: Value must be no more than 1"
        );
        assert_eq!(
            refused(ConfigType::Int, Rule::GzipLevel, "0"),
            "Invalid value 0 for configuration k: Value must be between 1 and 9 or equal to -1"
        );
        assert_eq!(
            refused(ConfigType::Boolean, Rule::Any, "yes"),
            "Invalid value yes for configuration k: Expected value to be either true or false"
        );
    }

    #[test]
    fn a_value_that_fits_no_record_is_refused_with_its_length() {
        for (kind, character) in [(ConfigType::String, "x"), (ConfigType::List, "é"), (ConfigType::Int, "7")]
        {
            let text = character.repeat(40_000);
            let refusal = canonical(kind, Rule::Any, &text).unwrap_err().of("broker.rack");
            assert!(refusal.starts_with("Invalid value ") && refusal.len() < 200, "{refusal}");
            let length =
                format!("broker.rack: It is {} bytes long; values have 0 to 32767 bytes", text.len());
            assert!(refusal.contains(&length), "{refusal}");
        }
        let longest = "x".repeat(STRING_BYTES_MAX);
        assert_eq!(canonical(ConfigType::String, Rule::Any, &format!(" {longest} ")), Ok(longest));
    }

    #[test]
    fn a_list_is_refused_by_its_first_strange_element() {
        let rule = Rule::ListOf(&["compact", "delete"]);
        assert_eq!(
            canonical(ConfigType::List, rule, "compact, bar").unwrap_err().of("cleanup.policy"),
            "Invalid value bar for configuration cleanup.policy: String must be one of: compact, delete"
        );
        assert_eq!(canonical(ConfigType::List, rule, " compact , delete "), Ok("compact,delete".into()));
        assert_eq!(canonical(ConfigType::List, rule, ""), Ok(String::new()));
    }

    #[test]
    fn throttled_replicas_are_pairs_or_a_star() {
        let rule = Rule::ThrottledReplicas;
        assert!(canonical(ConfigType::List, rule, "*").is_ok());
        assert!(canonical(ConfigType::List, rule, "0:1,1:2").is_ok());
        assert!(canonical(ConfigType::List, rule, "").is_ok());
        assert_eq!(canonical(ConfigType::List, rule, "abc").unwrap_err().shown, "[abc]");
    }

    #[test]
    fn hosts_have_counts_and_an_address_may_have_colons() {
        let counts = host_counts(" 10.0.0.1:5 , ::1:7,host : 0");
        assert_eq!(counts, Some(vec![("10.0.0.1", 5), ("::1", 7), ("host", 0)]));
        assert_eq!(host_counts(""), Some(Vec::new()));
        for wrong in ["host", "host:", ":5", "host:-1", "host:x", "a:1,b"] {
            assert_eq!(host_counts(wrong), None, "{wrong}");
            let refusal = canonical(ConfigType::String, Rule::HostCounts, wrong).unwrap_err();
            assert_eq!(refusal.shown, wrong);
        }
    }

    #[test]
    fn values_are_shown_as_kafka_shows_them() {
        assert_eq!(canonical(ConfigType::Long, Rule::Any, " 5 "), Ok("5".into()));
        assert_eq!(canonical(ConfigType::Boolean, Rule::Any, "TRUE"), Ok("true".into()));
        assert_eq!(canonical(ConfigType::Double, Rule::Any, "1"), Ok("1.0".into()));
        assert_eq!(java_double(f64::MAX), "1.7976931348623157E308");
        assert_eq!(java_double(1e7), "1.0E7");
    }
}
