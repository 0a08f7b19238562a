//! The numbers of cluster mirroring (KIP-1279) that Apache Kafka has not fixed yet.
//!
//! API keys and error codes are the proposal's plus 10,000, because Kafka 4.4 took the proposal's own for
//! other things. When the KIP ships, this table changes and nothing else. The build script reads the API
//! keys here for `key=mirror` in the schemas.

/// The API keys, by the name that a request shares with its response.
pub const API_KEYS: &[(&str, i16)] = &[
    ("CreateClusterMirror", 10_094),
    ("StartMirrorTopics", 10_095),
    ("StopMirrorTopics", 10_096),
    ("ListClusterMirrors", 10_098),
    ("DescribeClusterMirrors", 10_099),
    ("ReadMirrorStates", 10_100),
    ("WriteMirrorStates", 10_101),
    ("PauseMirrorTopics", 10_102),
    ("ResumeMirrorTopics", 10_103),
    ("DeleteClusterMirror", 10_104),
    ("BumpLeaderEpochs", 10_105),
    ("ReadMirrorOffsets", 10_106),
    ("RecoverMirrorTopics", 10_107),
    ("ApplyMirrorGroupOffsets", 10_108),
    ("DescribeMirrorReports", 10_109),
    ("CheckClusterMirror", 10_110),
    ("CompleteMirrorStop", 10_111),
];

/// The topic is written by its mirror alone.
pub const READ_ONLY_TOPIC: i16 = 10_134;
/// A mirror of that name exists.
pub const CLUSTER_MIRROR_ALREADY_EXISTS: i16 = 10_136;
/// No mirror has that name.
pub const UNKNOWN_CLUSTER_MIRROR: i16 = 10_137;
/// The topic belongs to a mirror already.
pub const TOPIC_ALREADY_IN_CLUSTER_MIRROR: i16 = 10_138;
/// The topic does not belong to the mirror.
pub const TOPIC_NOT_IN_CLUSTER_MIRROR: i16 = 10_139;
/// The topic's mirroring is paused already.
pub const MIRROR_TOPIC_ALREADY_PAUSED: i16 = 10_140;
/// The topic's mirroring is not paused.
pub const MIRROR_TOPIC_NOT_PAUSED: i16 = 10_141;
/// The topic's mirroring is being stopped.
pub const MIRROR_TOPIC_BEING_STOPPED: i16 = 10_142;
/// The mirror still has topics.
pub const CLUSTER_MIRROR_NOT_EMPTY: i16 = 10_143;
/// The principal may not do this to the mirror.
pub const CLUSTER_MIRROR_AUTHORIZATION_FAILED: i16 = 10_144;
/// The mirror's state does not allow this.
pub const INVALID_CLUSTER_MIRROR_STATE: i16 = 10_145;
/// The topic's mirroring has not been stopped.
pub const MIRROR_TOPIC_NOT_STOPPED: i16 = 10_146;
