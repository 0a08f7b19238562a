//! What a topic may be called: Kafka's rules, and its words for the one that a name breaks.

use thiserror::Error;

/// The longest name of a topic.
pub const LENGTH_MAX: usize = 249;

/// A name that no topic may have, in Kafka's words.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("Topic name is invalid: {0}")]
pub struct IllegalName(String);

/// True for text that can be a topic's name. It is a regular expression too, but can only be meant as a name.
pub fn is_legal(text: &str) -> bool {
    check(text).is_ok()
}

/// Checks a topic's name.
///
/// # Errors
/// Which rule it breaks.
pub fn check(name: &str) -> Result<(), IllegalName> {
    let refuse = |why: String| Err(IllegalName(why));
    match name {
        "" => refuse("the empty string is not allowed".to_owned()),
        "." | ".." => refuse(format!("'{name}' is not allowed")),
        _ if name.len() > LENGTH_MAX => {
            refuse(format!("the length of '{name}' is longer than the max allowed length {LENGTH_MAX}"))
        }
        _ if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) => {
            refuse(format!(
                "'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
            ))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_refused_in_kafkas_words() {
        let refused = |name: &str| check(name).unwrap_err().to_string();
        assert_eq!(refused(""), "Topic name is invalid: the empty string is not allowed");
        assert_eq!(refused(".."), "Topic name is invalid: '..' is not allowed");
        assert_eq!(
            refused("bad name"),
            "Topic name is invalid: 'bad name' contains one or more characters other than ASCII alphanumerics, \
             '.', '_' and '-'"
        );
        assert!(refused(&"x".repeat(250)).ends_with("is longer than the max allowed length 249"));
        for illegal in [".", "ä", "a/b"] {
            assert!(check(illegal).is_err(), "{illegal}");
        }
        for legal in ["a", "A.b_c-9", "__a.B-9", &"x".repeat(249)] {
            assert_eq!(check(legal), Ok(()), "{legal}");
        }
    }
}
