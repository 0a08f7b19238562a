//! What a client may call a topic, and which topics are a mirror's and not its.

use tarn_image::mirrors::Binding;
use tarn_image::topic_name;
use tarn_wire::ErrorCode;

use super::ApiError;

/// Checks a topic's name against Kafka's rules.
///
/// # Errors
/// INVALID_TOPIC_EXCEPTION with Kafka's words for the rule it breaks.
pub fn check(name: &str) -> Result<(), ApiError> {
    topic_name::check(name)
        .map_err(|illegal| ApiError::new(ErrorCode::INVALID_TOPIC_EXCEPTION, illegal.to_string()))
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
            binding.refusal(topic, &binding.desired.to_string()).to_string(),
        )),
    }
}
