//! Groups and their offsets.

use super::{ConfigKey, keys};

pub(super) const KEYS: &[ConfigKey] = keys! {
    /// Whether dead-letter topics of share groups are created when needed.
    "errors.deadletterqueue.auto.create.topics.enable": Boolean = "false", Any, ClusterWide;
    /// Names of dead-letter topics of share groups begin with this.
    "errors.deadletterqueue.topic.name.prefix": String = "dlq.", Any, ClusterWide;
    /// Least time between two assignments of a consumer group.
    "group.consumer.assignment.interval.ms": Int = "1000", AtLeast(0), ClusterWide;
    /// Server-side assignors of consumer groups, the default first.
    "group.consumer.assignors": List = "uniform,range", Any, ReadOnly;
    /// Heartbeat interval of consumer groups.
    "group.consumer.heartbeat.interval.ms": Int = "5000", AtLeast(1), ReadOnly;
    /// Largest assignment interval that a consumer group may ask for.
    "group.consumer.max.assignment.interval.ms": Int = "15000", AtLeast(0), ReadOnly;
    /// Largest heartbeat interval that a consumer group may ask for.
    "group.consumer.max.heartbeat.interval.ms": Int = "15000", AtLeast(1), ReadOnly;
    /// Largest session timeout that a consumer group may ask for.
    "group.consumer.max.session.timeout.ms": Int = "60000", AtLeast(1), ReadOnly;
    /// Most members of one consumer group.
    "group.consumer.max.size": Int = "2147483647", AtLeast(1), ReadOnly;
    /// Which way groups may move between the classic and the consumer protocol.
    "group.consumer.migration.policy": String =
        "bidirectional", OneOfAnyCase(&["DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"]), ReadOnly;
    /// Smallest assignment interval that a consumer group may ask for.
    "group.consumer.min.assignment.interval.ms": Int = "0", AtLeast(0), ReadOnly;
    /// Smallest heartbeat interval that a consumer group may ask for.
    "group.consumer.min.heartbeat.interval.ms": Int = "5000", AtLeast(1), ReadOnly;
    /// Smallest session timeout that a consumer group may ask for.
    "group.consumer.min.session.timeout.ms": Int = "45000", AtLeast(1), ReadOnly;
    /// Silence after which a member leaves a consumer group.
    "group.consumer.session.timeout.ms": Int = "45000", AtLeast(1), ReadOnly;
    /// How long the group coordinator gathers records before it writes; -1 adapts.
    "group.coordinator.append.linger.ms": Int = "-1", AtLeast(-1), ReadOnly;
    /// Threads for slow work of the group coordinator.
    "group.coordinator.background.threads": Int = "2", AtLeast(1), ReadOnly;
    /// Largest buffer that the group coordinator keeps for reuse.
    "group.coordinator.cached.buffer.max.bytes": Int = "1048588", AtLeast(524288), ClusterWide;
    /// Group protocols that are served.
    "group.coordinator.rebalance.protocols": List =
        "classic,consumer,streams", ListOf(&["consumer", "classic", "share", "streams"]), ReadOnly;
    /// Threads of the group coordinator.
    "group.coordinator.threads": Int = "4", AtLeast(1), ReadOnly;
    /// How long the first rebalance of a new classic group waits for more members.
    "group.initial.rebalance.delay.ms": Int = "3000", Any, ReadOnly;
    /// Largest session timeout of a classic member.
    "group.max.session.timeout.ms": Int = "1800000", Any, ReadOnly;
    /// Most members of one classic group.
    "group.max.size": Int = "2147483647", AtLeast(1), ReadOnly;
    /// Smallest session timeout of a classic member.
    "group.min.session.timeout.ms": Int = "6000", Any, ReadOnly;
    /// Least time between two assignments of a share group.
    "group.share.assignment.interval.ms": Int = "1000", AtLeast(0), ClusterWide;
    /// Server-side assignors of share groups.
    "group.share.assignors": List = "simple", Any, ReadOnly;
    /// Deliveries after which a share group gives a record up.
    "group.share.delivery.count.limit": Int = "5", Between(2, 10), ReadOnly;
    /// Heartbeat interval of share groups.
    "group.share.heartbeat.interval.ms": Int = "5000", AtLeast(1), ReadOnly;
    /// Largest assignment interval that a share group may ask for.
    "group.share.max.assignment.interval.ms": Int = "15000", AtLeast(0), ReadOnly;
    /// Largest delivery limit that a share group may ask for.
    "group.share.max.delivery.count.limit": Int = "10", Between(5, 25), ReadOnly;
    /// Largest heartbeat interval that a share group may ask for.
    "group.share.max.heartbeat.interval.ms": Int = "15000", AtLeast(1), ReadOnly;
    /// Largest lock limit that a share group may ask for.
    "group.share.max.partition.max.record.locks": Int = "4000", Between(2000, 10000), ReadOnly;
    /// Longest record lock that a share group may ask for.
    "group.share.max.record.lock.duration.ms": Int = "60000", Between(30000, 3600000), ReadOnly;
    /// Largest session timeout that a share group may ask for.
    "group.share.max.session.timeout.ms": Int = "60000", AtLeast(1), ReadOnly;
    /// Most share sessions on one broker.
    "group.share.max.share.sessions": Int = "2000", AtLeast(1), ReadOnly;
    /// Most members of one share group.
    "group.share.max.size": Int = "200", Between(1, 1000), ReadOnly;
    /// Smallest assignment interval that a share group may ask for.
    "group.share.min.assignment.interval.ms": Int = "0", AtLeast(0), ReadOnly;
    /// Smallest delivery limit that a share group may ask for.
    "group.share.min.delivery.count.limit": Int = "2", Between(2, 5), ReadOnly;
    /// Smallest heartbeat interval that a share group may ask for.
    "group.share.min.heartbeat.interval.ms": Int = "5000", AtLeast(1), ReadOnly;
    /// Smallest lock limit that a share group may ask for.
    "group.share.min.partition.max.record.locks": Int = "100", Between(100, 2000), ReadOnly;
    /// Shortest record lock that a share group may ask for.
    "group.share.min.record.lock.duration.ms": Int = "15000", Between(1000, 30000), ReadOnly;
    /// Smallest session timeout that a share group may ask for.
    "group.share.min.session.timeout.ms": Int = "45000", AtLeast(1), ReadOnly;
    /// Records of one partition that a share group may hold at once.
    "group.share.partition.max.record.locks": Int = "2000", Between(100, 10000), ReadOnly;
    /// How long a share consumer holds a record.
    "group.share.record.lock.duration.ms": Int = "30000", Between(1000, 3600000), ReadOnly;
    /// Silence after which a member leaves a share group.
    "group.share.session.timeout.ms": Int = "45000", AtLeast(1), ReadOnly;
    /// Least time between two assignments of a streams group.
    "group.streams.assignment.interval.ms": Int = "1000", AtLeast(0), ClusterWide;
    /// Server-side assignors of streams groups.
    "group.streams.assignors": List = "sticky", Any, ReadOnly;
    /// Heartbeat interval of streams groups.
    "group.streams.heartbeat.interval.ms": Int = "5000", AtLeast(1), ReadOnly;
    /// How long the first rebalance of a new streams group waits for more members.
    "group.streams.initial.rebalance.delay.ms": Int = "3000", AtLeast(0), ReadOnly;
    /// Largest assignment interval that a streams group may ask for.
    "group.streams.max.assignment.interval.ms": Int = "15000", AtLeast(0), ReadOnly;
    /// Largest heartbeat interval that a streams group may ask for.
    "group.streams.max.heartbeat.interval.ms": Int = "15000", AtLeast(1), ReadOnly;
    /// Largest session timeout that a streams group may ask for.
    "group.streams.max.session.timeout.ms": Int = "60000", AtLeast(1), ReadOnly;
    /// Most members of one streams group.
    "group.streams.max.size": Int = "2147483647", AtLeast(1), ReadOnly;
    /// Most standby replicas that a streams group may ask for.
    "group.streams.max.standby.replicas": Int = "2", AtLeast(0), ReadOnly;
    /// Smallest assignment interval that a streams group may ask for.
    "group.streams.min.assignment.interval.ms": Int = "0", AtLeast(0), ReadOnly;
    /// Smallest heartbeat interval that a streams group may ask for.
    "group.streams.min.heartbeat.interval.ms": Int = "5000", AtLeast(1), ReadOnly;
    /// Smallest session timeout that a streams group may ask for.
    "group.streams.min.session.timeout.ms": Int = "45000", AtLeast(1), ReadOnly;
    /// Standby replicas of each streams task.
    "group.streams.num.standby.replicas": Int = "0", AtLeast(0), ReadOnly;
    /// Client tags that spread standby replicas of streams tasks.
    "group.streams.rack.aware.assignment.tags": List = "", Any, ReadOnly;
    /// Silence after which a member leaves a streams group.
    "group.streams.session.timeout.ms": Int = "45000", AtLeast(1), ReadOnly;
    /// A class that describes streams topologies; not available here.
    "group.streams.topology.description.plugin.class": Class = null, Any, ReadOnly;
    /// Largest metadata text of a committed offset.
    "offset.metadata.max.bytes": Int = "4096", Any, ReadOnly;
    /// Longest wait until a commit is replicated.
    "offsets.commit.timeout.ms": Int = "5000", AtLeast(1), ReadOnly;
    /// Bytes read at once when offsets are loaded.
    "offsets.load.buffer.size": Int = "5242880", AtLeast(1), ReadOnly;
    /// How often expired offsets are looked for.
    "offsets.retention.check.interval.ms": Long = "600000", AtLeast(1), ReadOnly;
    /// How long offsets of an empty group are kept.
    "offsets.retention.minutes": Int = "10080", AtLeast(1), ReadOnly;
    /// Codec of `__consumer_offsets`, by number.
    "offsets.topic.compression.codec": Int = "0", Any, ReadOnly;
    /// Partitions of `__consumer_offsets`.
    "offsets.topic.num.partitions": Int = "50", AtLeast(1), ReadOnly;
    /// Replicas of `__consumer_offsets`.
    "offsets.topic.replication.factor": Short = "3", AtLeast(1), ReadOnly;
    /// Largest segment of `__consumer_offsets`.
    "offsets.topic.segment.bytes": Int = "104857600", AtLeast(1), ReadOnly;
    /// How long the share coordinator gathers records before it writes; -1 adapts.
    "share.coordinator.append.linger.ms": Int = "-1", AtLeast(-1), ReadOnly;
    /// Largest buffer that the share coordinator keeps for reuse.
    "share.coordinator.cached.buffer.max.bytes": Int = "1048588", AtLeast(524288), ClusterWide;
    /// Bytes read at once when share state is loaded.
    "share.coordinator.load.buffer.size": Int = "5242880", AtLeast(1), ReadOnly;
    /// Updates of share state between two snapshots.
    "share.coordinator.snapshot.update.records.per.snapshot": Int = "500", Between(0, 500), ReadOnly;
    /// Codec of `__share_group_state`, by number.
    "share.coordinator.state.topic.compression.codec": Int = "0", Any, ReadOnly;
    /// Least in-sync replicas of `__share_group_state`.
    "share.coordinator.state.topic.min.isr": Short = "2", AtLeast(1), ReadOnly;
    /// Partitions of `__share_group_state`.
    "share.coordinator.state.topic.num.partitions": Int = "50", AtLeast(1), ReadOnly;
    /// Replicas of `__share_group_state`.
    "share.coordinator.state.topic.replication.factor": Short = "3", AtLeast(1), ReadOnly;
    /// Largest segment of `__share_group_state`.
    "share.coordinator.state.topic.segment.bytes": Int = "104857600", AtLeast(1), ReadOnly;
    /// Threads of the share coordinator.
    "share.coordinator.threads": Int = "1", AtLeast(1), ReadOnly;
    /// Longest write of the share coordinator.
    "share.coordinator.write.timeout.ms": Int = "5000", AtLeast(1), ReadOnly;
    /// Waiting share fetches after which finished ones are purged.
    "share.fetch.purgatory.purge.interval.requests": Int = "1000", Any, ReadOnly;
};
