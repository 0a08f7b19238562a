//! The names of topics.

use tarn_image::mirrors::Binding;
use tarn_wire::ErrorCode;

use super::ApiError;

/// The longest name of a topic.
const LENGTH_MAX: usize = 249;

/// Checks a topic's name against Kafka's rules.
///
/// # Errors
/// INVALID_TOPIC_EXCEPTION with Kafka's words for the rule it breaks.
pub fn check(name: &str) -> Result<(), ApiError> {
    let refuse = |why: String| {
        Err(ApiError::new(ErrorCode::INVALID_TOPIC_EXCEPTION, format!("Topic name is invalid: {why}")))
    };
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

/// Refuses a client's change to a topic that a mirror fills or is not done with.
///
/// # Errors
/// POLICY_VIOLATION, naming the mirror, the state and the command that ends it.
pub fn refuse_mirrored(topic: &str, binding: Option<&Binding>) -> Result<(), ApiError> {
    match binding.filter(|binding| binding.is_active()) {
        None => Ok(()),
        Some(binding) => Err(ApiError::new(
            ErrorCode::POLICY_VIOLATION,
            format!(
                "Topic '{topic}' belongs to cluster mirror '{mirror}' and is {state}; end that first: \
                 tarn mirror stop {mirror} --topics {topic}",
                mirror = binding.mirror,
                state = binding.desired
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_refused_in_kafkas_words() {
        let refused = |name: &str| check(name).unwrap_err().message.unwrap();
        assert_eq!(refused(""), "Topic name is invalid: the empty string is not allowed");
        assert_eq!(refused(".."), "Topic name is invalid: '..' is not allowed");
        assert_eq!(
            refused("bad name"),
            "Topic name is invalid: 'bad name' contains one or more characters other than ASCII alphanumerics, \
             '.', '_' and '-'"
        );
        assert!(refused(&"x".repeat(250)).ends_with("is longer than the max allowed length 249"));
        assert_eq!(check(&"x".repeat(249)), Ok(()));
        assert_eq!(check("__a.B-9"), Ok(()));
    }
}
