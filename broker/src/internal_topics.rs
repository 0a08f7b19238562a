//! The topics in which coordinators keep their state, and who else may write to them.
//!
//! Kafka's admin client may write to Kafka's own, which is how an operator repairs one. Nobody may write
//! to `__mirror_state`: what a mirror's coordinator says decides whether a partition takes writes.

use tarn_image::mirrors::STATE_TOPIC;

/// Kafka's own.
const KAFKAS: [&str; 3] = ["__consumer_offsets", "__transaction_state", "__share_group_state"];
/// The client id by which Kafka tells its admin client from others.
const ADMIN_CLIENT: &str = "__admin_client";

/// True for a topic in which a coordinator keeps its state.
pub fn is_internal(topic: &str) -> bool {
    topic == STATE_TOPIC || KAFKAS.contains(&topic)
}

/// True where a client of this id may produce to `topic`.
pub fn takes_writes_of(topic: &str, client_id: Option<&str>) -> bool {
    !is_internal(topic) || KAFKAS.contains(&topic) && client_id == Some(ADMIN_CLIENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_admin_client_writes_to_kafkas_internal_topics() {
        assert!(takes_writes_of("orders", None));
        assert!(!takes_writes_of("__consumer_offsets", None));
        assert!(!takes_writes_of("__transaction_state", Some("orders-service")));
        assert!(takes_writes_of("__consumer_offsets", Some("__admin_client")));
    }

    #[test]
    fn no_client_writes_what_a_mirrors_coordinator_says() {
        assert!(!takes_writes_of("__mirror_state", Some("__admin_client")));
        assert!(!takes_writes_of("__mirror_state", None));
    }
}
