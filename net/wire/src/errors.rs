//! Every error code of the protocol, once: its number, its name, whether a client may try again, and a
//! sentence for people.
//!
//! Numbers and the names are Kafka's; which are retriable is what its Java client does. Those of cluster
//! mirroring come from `mirror_numbers`.

use std::fmt;

use crate::mirror_numbers;

/// An error code as a message carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub i16);

/// What a client should do with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retry {
    /// The same request may succeed later.
    Yes,
    /// It will not.
    No,
}

/// One line of the table below.
struct Entry {
    code: ErrorCode,
    name: &'static str,
    retry: Retry,
    message: &'static str,
}

macro_rules! error_codes {
    ($($name:ident = $code:expr, $retry:ident, $message:literal;)*) => {
        impl ErrorCode {
            $(#[doc = $message] pub const $name: ErrorCode = ErrorCode($code);)*
        }

        /// Ordered by code.
        static ENTRIES: &[Entry] = &[$(Entry {
            code: ErrorCode::$name,
            name: stringify!($name),
            retry: Retry::$retry,
            message: $message,
        },)*];
    };
}

impl ErrorCode {
    /// Whether it is `NONE`.
    pub fn is_none(self) -> bool {
        self == ErrorCode::NONE
    }

    /// Its name in Kafka; `UNKNOWN_SERVER_ERROR` for a number that has none, as clients see it.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// Whether the same request may succeed later.
    pub fn is_retriable(self) -> bool {
        self.entry().retry == Retry::Yes
    }

    /// What it means, in a sentence.
    pub fn message(self) -> &'static str {
        self.entry().message
    }

    /// Its place among `all`; that of `UNKNOWN_SERVER_ERROR` for a number that has none.
    pub fn place(self) -> usize {
        ENTRIES.binary_search_by_key(&self, |entry| entry.code).unwrap_or(0)
    }

    /// Every code there is, in order.
    pub fn all() -> impl Iterator<Item = ErrorCode> {
        ENTRIES.iter().map(|entry| entry.code)
    }

    fn entry(self) -> &'static Entry {
        match ENTRIES.binary_search_by_key(&self, |entry| entry.code) {
            Ok(found) => &ENTRIES[found],
            Err(_) => &ENTRIES[0],
        }
    }
}

/// Name and number.
impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

error_codes! {
    UNKNOWN_SERVER_ERROR = -1, No, "The broker met an error that it did not expect.";
    NONE = 0, No, "No error.";
    OFFSET_OUT_OF_RANGE = 1, No, "The offset lies outside the partition's log.";
    CORRUPT_MESSAGE = 2, Yes, "A record batch is damaged: its checksum, size or content does not hold.";
    UNKNOWN_TOPIC_OR_PARTITION = 3, Yes, "This broker has no such topic or partition.";
    INVALID_FETCH_SIZE = 4, No, "The fetch size is not valid.";
    LEADER_NOT_AVAILABLE = 5, Yes, "The partition has no leader at the moment.";
    NOT_LEADER_OR_FOLLOWER = 6, Yes, "This broker is neither the partition's leader nor one of its replicas.";
    REQUEST_TIMED_OUT = 7, Yes, "The request could not be completed in time.";
    BROKER_NOT_AVAILABLE = 8, No, "The broker is not available.";
    REPLICA_NOT_AVAILABLE = 9, Yes, "The replica is not available for this partition.";
    MESSAGE_TOO_LARGE = 10, No, "A record batch is larger than the topic allows.";
    STALE_CONTROLLER_EPOCH = 11, No, "The controller has moved to another node.";
    OFFSET_METADATA_TOO_LARGE = 12, No, "The metadata of a committed offset is too long.";
    NETWORK_EXCEPTION = 13, Yes, "The connection ended before the response came.";
    COORDINATOR_LOAD_IN_PROGRESS = 14, Yes, "The coordinator is still loading its records.";
    COORDINATOR_NOT_AVAILABLE = 15, Yes, "The coordinator is not available.";
    NOT_COORDINATOR = 16, Yes, "This broker is not the coordinator asked for.";
    INVALID_TOPIC_EXCEPTION = 17, No, "The topic's name is not valid, or the topic may not be used like this.";
    RECORD_LIST_TOO_LARGE = 18, No, "The records are larger than a segment may be.";
    NOT_ENOUGH_REPLICAS = 19, Yes, "Fewer replicas are in sync than the topic requires, so nothing was appended.";
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, Yes, "The records were appended, but fewer replicas are in sync than the topic requires.";
    INVALID_REQUIRED_ACKS = 21, No, "The number of acknowledgements asked for is none of -1, 0 and 1.";
    ILLEGAL_GENERATION = 22, No, "The generation is not the group's current one.";
    INCONSISTENT_GROUP_PROTOCOL = 23, No, "The member has no protocol in common with the group.";
    INVALID_GROUP_ID = 24, No, "The group id is not valid.";
    UNKNOWN_MEMBER_ID = 25, No, "The group has no member with this id.";
    INVALID_SESSION_TIMEOUT = 26, No, "The session timeout is outside what the broker allows.";
    REBALANCE_IN_PROGRESS = 27, No, "The group is rebalancing, so the member has to join again.";
    INVALID_COMMIT_OFFSET_SIZE = 28, No, "The committed offsets are too large to be stored.";
    TOPIC_AUTHORIZATION_FAILED = 29, No, "The principal may not do this to the topic.";
    GROUP_AUTHORIZATION_FAILED = 30, No, "The principal may not do this to the group.";
    CLUSTER_AUTHORIZATION_FAILED = 31, No, "The principal may not do this to the cluster.";
    INVALID_TIMESTAMP = 32, No, "A record's timestamp is outside what the topic allows.";
    UNSUPPORTED_SASL_MECHANISM = 33, No, "The broker does not offer this SASL mechanism.";
    ILLEGAL_SASL_STATE = 34, No, "The request is not expected in this phase of the SASL handshake.";
    UNSUPPORTED_VERSION = 35, No, "The broker does not serve this version of the API.";
    TOPIC_ALREADY_EXISTS = 36, No, "A topic of this name exists.";
    INVALID_PARTITIONS = 37, No, "The number of partitions is not valid.";
    INVALID_REPLICATION_FACTOR = 38, No, "The replication factor is not positive, or larger than the number of brokers.";
    INVALID_REPLICA_ASSIGNMENT = 39, No, "The assignment of replicas is not valid.";
    INVALID_CONFIG = 40, No, "The configuration is not valid.";
    NOT_CONTROLLER = 41, Yes, "This node is not the active controller.";
    INVALID_REQUEST = 42, No, "The request contradicts itself or the protocol.";
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, No, "The format of the stored records does not support this.";
    POLICY_VIOLATION = 44, No, "A policy of the cluster forbids this.";
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, No, "The batch does not continue the producer's sequence.";
    DUPLICATE_SEQUENCE_NUMBER = 46, No, "The producer has sent this sequence before.";
    INVALID_PRODUCER_EPOCH = 47, No, "A producer with a newer epoch has taken over.";
    INVALID_TXN_STATE = 48, No, "The transaction's state does not allow this.";
    INVALID_PRODUCER_ID_MAPPING = 49, No, "The producer id does not belong to the transactional id.";
    INVALID_TRANSACTION_TIMEOUT = 50, No, "The transaction timeout is longer than the broker allows.";
    CONCURRENT_TRANSACTIONS = 51, Yes, "The transactional id's last transaction is still being completed.";
    TRANSACTION_COORDINATOR_FENCED = 52, No, "A newer transaction coordinator has taken over.";
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, No, "The principal may not use the transactional id.";
    SECURITY_DISABLED = 54, No, "The broker has no authorizer.";
    OPERATION_NOT_ATTEMPTED = 55, No, "Another error came first, so this was not tried.";
    KAFKA_STORAGE_ERROR = 56, Yes, "The log directory of the partition is offline.";
    LOG_DIR_NOT_FOUND = 57, No, "The broker has no such log directory.";
    SASL_AUTHENTICATION_FAILED = 58, No, "SASL authentication failed.";
    UNKNOWN_PRODUCER_ID = 59, No, "The partition knows nothing of this producer id.";
    REASSIGNMENT_IN_PROGRESS = 60, No, "The partition is being reassigned.";
    DELEGATION_TOKEN_AUTH_DISABLED = 61, No, "Delegation tokens are not enabled.";
    DELEGATION_TOKEN_NOT_FOUND = 62, No, "There is no such delegation token.";
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, No, "The principal is neither owner nor renewer of the delegation token.";
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, No, "Delegation tokens cannot be requested over this connection.";
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, No, "The principal may not use the delegation token.";
    DELEGATION_TOKEN_EXPIRED = 66, No, "The delegation token has expired.";
    INVALID_PRINCIPAL_TYPE = 67, No, "The type of principal is not supported.";
    NON_EMPTY_GROUP = 68, No, "The group still has members.";
    GROUP_ID_NOT_FOUND = 69, No, "There is no such group.";
    FETCH_SESSION_ID_NOT_FOUND = 70, Yes, "The broker has no such fetch session.";
    INVALID_FETCH_SESSION_EPOCH = 71, Yes, "The request does not continue its fetch session.";
    LISTENER_NOT_FOUND = 72, Yes, "The leader has no listener of the name that the request came in on.";
    TOPIC_DELETION_DISABLED = 73, No, "Topics cannot be deleted here.";
    FENCED_LEADER_EPOCH = 74, Yes, "The leader epoch is older than the broker's.";
    UNKNOWN_LEADER_EPOCH = 75, Yes, "The leader epoch is newer than the broker's.";
    UNSUPPORTED_COMPRESSION_TYPE = 76, No, "The client's version cannot read records compressed like this.";
    STALE_BROKER_EPOCH = 77, No, "The broker epoch is not the current one.";
    OFFSET_NOT_AVAILABLE = 78, Yes, "The new leader does not know its high watermark yet.";
    MEMBER_ID_REQUIRED = 79, No, "The member has to join again with the id it was given.";
    PREFERRED_LEADER_NOT_AVAILABLE = 80, Yes, "The preferred leader is not available.";
    GROUP_MAX_SIZE_REACHED = 81, No, "The group has as many members as it may have.";
    FENCED_INSTANCE_ID = 82, No, "Another member has taken over the instance id.";
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, Yes, "No replica that may lead is available.";
    ELECTION_NOT_NEEDED = 84, Yes, "The partition already has the leader that an election would give it.";
    NO_REASSIGNMENT_IN_PROGRESS = 85, No, "The partition is not being reassigned.";
    GROUP_SUBSCRIBED_TO_TOPIC = 86, No, "The group is subscribed to the topic.";
    INVALID_RECORD = 87, No, "A record breaks a rule of its topic.";
    UNSTABLE_OFFSET_COMMIT = 88, Yes, "An offset is part of a transaction that is not finished.";
    THROTTLING_QUOTA_EXCEEDED = 89, Yes, "A quota is used up for now.";
    PRODUCER_FENCED = 90, No, "A newer producer with the same transactional id has taken over.";
    RESOURCE_NOT_FOUND = 91, No, "There is no such resource.";
    DUPLICATE_RESOURCE = 92, No, "The resource exists, or was named twice.";
    UNACCEPTABLE_CREDENTIAL = 93, No, "The credential does not satisfy the rules.";
    INCONSISTENT_VOTER_SET = 94, No, "The sender and this controller disagree on who the voters are.";
    INVALID_UPDATE_VERSION = 95, No, "The version of the update is not valid.";
    FEATURE_UPDATE_FAILED = 96, No, "The features could not be updated.";
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, No, "The forwarded principal cannot be read.";
    SNAPSHOT_NOT_FOUND = 98, No, "There is no such snapshot.";
    POSITION_OUT_OF_RANGE = 99, No, "The position lies outside the snapshot.";
    UNKNOWN_TOPIC_ID = 100, Yes, "This broker has no topic with this id.";
    DUPLICATE_BROKER_REGISTRATION = 101, No, "A running broker is registered with this id.";
    BROKER_ID_NOT_REGISTERED = 102, No, "No broker is registered with this id.";
    INCONSISTENT_TOPIC_ID = 103, Yes, "The topic's id is not the one in the request.";
    INCONSISTENT_CLUSTER_ID = 104, No, "The request is meant for another cluster.";
    TRANSACTIONAL_ID_NOT_FOUND = 105, No, "There is no such transactional id.";
    FETCH_SESSION_TOPIC_ID_ERROR = 106, Yes, "The fetch session mixes topic names and topic ids.";
    INELIGIBLE_REPLICA = 107, No, "A replica may not join the in-sync replicas.";
    NEW_LEADER_ELECTED = 108, No, "The change made another broker the leader.";
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, No, "The offset has moved to tiered storage.";
    FENCED_MEMBER_EPOCH = 110, No, "The group has fenced the member, which has to join again.";
    UNRELEASED_INSTANCE_ID = 111, No, "Another member of the group still has the instance id.";
    UNSUPPORTED_ASSIGNOR = 112, No, "The group's coordinator does not have this assignor.";
    STALE_MEMBER_EPOCH = 113, No, "The member epoch is not the current one.";
    MISMATCHED_ENDPOINT_TYPE = 114, No, "The request is meant for another kind of endpoint.";
    UNSUPPORTED_ENDPOINT_TYPE = 115, No, "The kind of endpoint is not supported.";
    UNKNOWN_CONTROLLER_ID = 116, No, "There is no controller with this id.";
    UNKNOWN_SUBSCRIPTION_ID = 117, No, "The client has to ask for its telemetry subscription again.";
    TELEMETRY_TOO_LARGE = 118, No, "The telemetry is larger than the broker accepts.";
    INVALID_REGISTRATION = 119, No, "The controller does not accept the registration.";
    TRANSACTION_ABORTABLE = 120, No, "The transaction has failed and can only be aborted.";
    INVALID_RECORD_STATE = 121, No, "The record's delivery state does not allow the acknowledgement.";
    SHARE_SESSION_NOT_FOUND = 122, Yes, "The broker has no such share session.";
    INVALID_SHARE_SESSION_EPOCH = 123, Yes, "The request does not continue its share session.";
    FENCED_STATE_EPOCH = 124, No, "The state epoch is older than the stored one.";
    INVALID_VOTER_KEY = 125, No, "The voter's id and directory id do not match the receiver's.";
    DUPLICATE_VOTER = 126, No, "The voter is in the set of voters already.";
    VOTER_NOT_FOUND = 127, No, "The voter is not in the set of voters.";
    INVALID_REGULAR_EXPRESSION = 128, No, "The regular expression is not valid.";
    REBOOTSTRAP_REQUIRED = 129, No, "The client is connected to another cluster or node than it thinks and has to bootstrap again.";
    STREAMS_INVALID_TOPOLOGY = 130, No, "The topology is not valid.";
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, No, "The topology epoch is not valid.";
    STREAMS_TOPOLOGY_FENCED = 132, No, "A newer topology has taken over.";
    SHARE_SESSION_LIMIT_REACHED = 133, Yes, "The broker has as many share sessions as it may have.";
    GROUP_DELETION_FAILED = 134, No, "The group could not be deleted.";
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135, No, "The description of the topology could not be stored.";
    CONTROLLER_ID_NOT_REGISTERED = 136, No, "No controller is registered with this id.";
    READ_ONLY_TOPIC = mirror_numbers::READ_ONLY_TOPIC, No, "The topic is written by its mirror alone.";
    CLUSTER_MIRROR_ALREADY_EXISTS = mirror_numbers::CLUSTER_MIRROR_ALREADY_EXISTS, No, "A mirror of this name exists.";
    UNKNOWN_CLUSTER_MIRROR = mirror_numbers::UNKNOWN_CLUSTER_MIRROR, No, "There is no mirror of this name.";
    TOPIC_ALREADY_IN_CLUSTER_MIRROR = mirror_numbers::TOPIC_ALREADY_IN_CLUSTER_MIRROR, No, "The topic belongs to a mirror already.";
    TOPIC_NOT_IN_CLUSTER_MIRROR = mirror_numbers::TOPIC_NOT_IN_CLUSTER_MIRROR, No, "The topic does not belong to the mirror.";
    MIRROR_TOPIC_ALREADY_PAUSED = mirror_numbers::MIRROR_TOPIC_ALREADY_PAUSED, No, "The mirroring of the topic is paused already.";
    MIRROR_TOPIC_NOT_PAUSED = mirror_numbers::MIRROR_TOPIC_NOT_PAUSED, No, "The mirroring of the topic is not paused.";
    MIRROR_TOPIC_BEING_STOPPED = mirror_numbers::MIRROR_TOPIC_BEING_STOPPED, No, "The mirroring of the topic is being stopped.";
    CLUSTER_MIRROR_NOT_EMPTY = mirror_numbers::CLUSTER_MIRROR_NOT_EMPTY, No, "The mirror still has topics.";
    CLUSTER_MIRROR_AUTHORIZATION_FAILED = mirror_numbers::CLUSTER_MIRROR_AUTHORIZATION_FAILED, No, "The principal may not do this to the mirror.";
    INVALID_CLUSTER_MIRROR_STATE = mirror_numbers::INVALID_CLUSTER_MIRROR_STATE, No, "The state of the mirror or topic does not allow this.";
    MIRROR_TOPIC_NOT_STOPPED = mirror_numbers::MIRROR_TOPIC_NOT_STOPPED, No, "The mirroring of the topic has not been stopped.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_ordered_and_begins_with_what_stands_for_unknown_codes() {
        assert!(ENTRIES.is_sorted_by(|a, b| a.code < b.code));
        assert_eq!(ENTRIES[0].code, ErrorCode::UNKNOWN_SERVER_ERROR);
        assert_eq!(ErrorCode(9999).name(), "UNKNOWN_SERVER_ERROR");
    }

    #[test]
    fn kafkas_codes_have_no_gaps() {
        let kafkas: Vec<i16> = ErrorCode::all().map(|code| code.0).filter(|&code| code < 10_000).collect();
        assert_eq!(kafkas, (-1..=136).collect::<Vec<i16>>());
    }

    #[test]
    fn a_code_knows_its_name_and_whether_to_retry() {
        assert_eq!(ErrorCode(6).name(), "NOT_LEADER_OR_FOLLOWER");
        assert!(ErrorCode::NOT_LEADER_OR_FOLLOWER.is_retriable());
        assert!(!ErrorCode::MESSAGE_TOO_LARGE.is_retriable());
        assert_eq!(ErrorCode::READ_ONLY_TOPIC.to_string(), "READ_ONLY_TOPIC (10134)");
    }
}
