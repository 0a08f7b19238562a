//! What `--topics` and `--exclude` are given: names of topics, and regular expressions that match whole names.
//!
//! They are read before a cluster is asked: what is no pattern is wrong usage, whatever the cluster is like.

use tarn_image::config::mirror::Patterns;

use crate::failure::Failure;

/// What was given, without the spaces around it.
///
/// # Errors
/// Wrong usage, naming the first that is empty or no regular expression.
pub(super) fn checked(given: &[String]) -> Result<Vec<String>, Failure> {
    let given: Vec<String> = given.iter().map(|text| text.trim().to_owned()).collect();
    if given.iter().any(String::is_empty) {
        let why = "an empty name or pattern matches no topic; '.*' matches all of them";
        return Err(Failure::Usage(why.to_owned()));
    }
    parsed(&given)?;
    Ok(given)
}

/// What was given as one: a name matches if any of them does, and nothing does where none was given.
///
/// # Errors
/// As [`checked`].
pub(super) fn parsed(given: &[String]) -> Result<Patterns, Failure> {
    Patterns::parse(given.iter().map(String::as_str)).map_err(|error| Failure::Usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_pattern_is_wrong_usage_and_named() {
        let checked =
            |given: &[&str]| checked(&given.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(checked(&[" orders ", "pay.*"]), Ok(vec!["orders".to_owned(), "pay.*".to_owned()]));
        assert_eq!(checked(&[]), Ok(Vec::new()));
        for (bad, named) in [("a(b", "'a(b'"), ("*", "'*'"), (" ", "empty"), ("(?=x)", "'(?=x)'")] {
            let failure = checked(&["orders", bad]).unwrap_err();
            assert_eq!(failure.exit_code(), 2, "{bad}");
            assert!(failure.to_string().contains(named), "{failure}");
        }
    }
}
