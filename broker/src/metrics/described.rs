//! The metrics of a broker, and of what it holds together: controller, logs, limits, process.

use tarn_metrics::metrics;

metrics! {
    /// Records that clients produced; with a topic, of it alone.
    MESSAGES_IN: Counter Number "kafka_server_brokertopicmetrics_messagesin_total" ["topic"],
        jmx "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec";
    /// Bytes of batches that clients produced.
    BYTES_IN: Counter Bytes "kafka_server_brokertopicmetrics_bytesin_total" ["topic"],
        jmx "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec";
    /// Bytes of batches in answers to fetches.
    BYTES_OUT: Counter Bytes "kafka_server_brokertopicmetrics_bytesout_total" ["topic"],
        jmx "kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec";
    /// Batches that clients wanted to append.
    PRODUCE_REQUESTS: Counter Number "kafka_server_brokertopicmetrics_totalproducerequests_total" ["topic"],
        jmx "kafka.server:type=BrokerTopicMetrics,name=TotalProduceRequestsPerSec";
    /// Batches that clients wanted to append and that were not.
    FAILED_PRODUCE_REQUESTS: Counter Number "kafka_server_brokertopicmetrics_failedproducerequests_total" ["topic"],
        jmx "kafka.server:type=BrokerTopicMetrics,name=FailedProduceRequestsPerSec";
    /// Partitions in answers to fetches.
    FETCH_REQUESTS: Counter Number "kafka_server_brokertopicmetrics_totalfetchrequests_total" ["topic"],
        jmx "kafka.server:type=BrokerTopicMetrics,name=TotalFetchRequestsPerSec";
    /// Partitions in answers to fetches that have an error.
    FAILED_FETCH_REQUESTS: Counter Number "kafka_server_brokertopicmetrics_failedfetchrequests_total" ["topic"],
        jmx "kafka.server:type=BrokerTopicMetrics,name=FailedFetchRequestsPerSec";
    /// Topics that had traffic and have series of their own; 0 where there are more than `tarn.metrics.topics.max`.
    TOPICS_TOLD: Gauge Number "tarn_topics_with_series" [];

    /// Requests, by API and version. ApiVersions is not counted.
    REQUESTS: Counter Number "kafka_network_requestmetrics_requests_total" ["request", "version"],
        jmx "kafka.network:type=RequestMetrics,name=RequestsPerSec";
    /// From a request that was read to its answer, waiting included. Quantiles are of the last five minutes.
    TOTAL_TIME: Summary Milliseconds "kafka_network_requestmetrics_totaltimems" ["request"],
        jmx "kafka.network:type=RequestMetrics,name=TotalTimeMs";
    /// What of that time the node worked for the request; all of it, but for fetches that wait for records.
    LOCAL_TIME: Summary Milliseconds "kafka_network_requestmetrics_localtimems" ["request"],
        jmx "kafka.network:type=RequestMetrics,name=LocalTimeMs";
    /// How long a fetch waited for records to come; no other request waits for something to happen.
    REMOTE_TIME: Summary Milliseconds "kafka_network_requestmetrics_remotetimems" ["request"],
        jmx "kafka.network:type=RequestMetrics,name=RemoteTimeMs";
    /// Errors in answers by code, NONE included: one for each partition, topic or whatever else was asked for.
    ERRORS: Counter Number "kafka_network_requestmetrics_errors_total" ["request", "error"],
        jmx "kafka.network:type=RequestMetrics,name=ErrorsPerSec";
    /// Requests that ended their connection instead of being answered.
    UNANSWERED: Counter Number "tarn_requests_closed_total" ["request"];

    /// Replicas on this node.
    PARTITION_COUNT: Gauge Number "kafka_server_replicamanager_partitioncount" [],
        jmx "kafka.server:type=ReplicaManager,name=PartitionCount";
    /// Partitions that this node leads.
    LEADER_COUNT: Gauge Number "kafka_server_replicamanager_leadercount" [],
        jmx "kafka.server:type=ReplicaManager,name=LeaderCount";
    /// Replicas of this node whose logs could not be opened.
    OFFLINE_REPLICAS: Gauge Number "kafka_server_replicamanager_offlinereplicacount" [],
        jmx "kafka.server:type=ReplicaManager,name=OfflineReplicaCount";
    /// Partitions led here of which a replica is not in sync.
    UNDER_REPLICATED: Gauge Number "kafka_server_replicamanager_underreplicatedpartitions" [],
        jmx "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions";
    /// Partitions led here with fewer replicas in sync than `min.insync.replicas`.
    UNDER_MIN_ISR: Gauge Number "kafka_server_replicamanager_underminisrpartitioncount" [],
        jmx "kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount";
    /// Partitions led here with just as many replicas in sync as `min.insync.replicas`.
    AT_MIN_ISR: Gauge Number "kafka_server_replicamanager_atminisrpartitioncount" [],
        jmx "kafka.server:type=ReplicaManager,name=AtMinIsrPartitionCount";
    /// Fetch sessions.
    FETCH_SESSIONS: Gauge Number "kafka_server_fetchsessioncache_numincrementalfetchsessions" [],
        jmx "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions";
    /// Partitions that fetch sessions name.
    FETCH_SESSION_PARTITIONS: Gauge Number
        "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached" [],
        jmx "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached";

    /// Bytes of a partition's log.
    LOG_SIZE: Gauge Bytes "kafka_log_log_size" ["topic", "partition"], jmx "kafka.log:type=Log,name=Size";
    /// Segments of a partition's log.
    LOG_SEGMENTS: Gauge Number "kafka_log_log_numlogsegments" ["topic", "partition"],
        jmx "kafka.log:type=Log,name=NumLogSegments";
    /// The first offset of a partition's log.
    LOG_START: Gauge Number "kafka_log_log_logstartoffset" ["topic", "partition"],
        jmx "kafka.log:type=Log,name=LogStartOffset";
    /// The offset after the last record of a partition's log.
    LOG_END: Gauge Number "kafka_log_log_logendoffset" ["topic", "partition"],
        jmx "kafka.log:type=Log,name=LogEndOffset";
    /// Partitions that have series of their own; 0 where there are more than `tarn.metrics.partitions.max`.
    PARTITIONS_TOLD: Gauge Number "tarn_partitions_with_series" [];
    /// Flushes, each of all logs that waited for one. Quantiles are of the last five minutes.
    FLUSHES: Summary Milliseconds "kafka_log_logflushstats_logflushrateandtimems" [],
        jmx "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs";
    /// Lookups of fetches that memory did not have the answer to, and that are done beside the core, under way.
    COLD_LOOKUPS: Gauge Number "tarn_cold_lookups_under_way" [];
    /// How long those took that have ended. Quantiles are of the last five minutes.
    COLD_LOOKUP_TIME: Summary Milliseconds "tarn_cold_lookup_ms" [];
    /// Log directories that are out of service: their disk has failed, or they were not there at the start.
    OFFLINE_DIRS: Gauge Number "kafka_log_logmanager_offlinelogdirectorycount" [],
        jmx "kafka.log:type=LogManager,name=OfflineLogDirectoryCount";
    /// 1 where a log directory is out of service; its last path, where it was not there at the start.
    DIR_OFFLINE: Gauge Truth "kafka_log_logmanager_logdirectoryoffline" ["logDirectory"],
        jmx "kafka.log:type=LogManager,name=LogDirectoryOffline";
    /// Logs of a directory that a crash left, and that are still to be recovered.
    LOGS_TO_RECOVER: Gauge Number "kafka_log_logmanager_remaininglogstorecover" ["dir"],
        jmx "kafka.log:type=LogManager,name=remainingLogsToRecover";
    /// How much of its memory for keys the cleaner needed: the most of the last rounds of its threads.
    CLEANER_BUFFER: Gauge Percent "kafka_log_logcleaner_max_buffer_utilization_percent" [],
        jmx "kafka.log:type=LogCleaner,name=max-buffer-utilization-percent";
    /// What was left of the segments that those rounds replaced.
    CLEANER_RECOPY: Gauge Percent "kafka_log_logcleaner_cleaner_recopy_percent" [],
        jmx "kafka.log:type=LogCleaner,name=cleaner-recopy-percent";
    /// How long the longest of those rounds took.
    CLEANER_TIME: Gauge Seconds "kafka_log_logcleaner_max_clean_time_secs" [],
        jmx "kafka.log:type=LogCleaner,name=max-clean-time-secs";
    /// By how much the record that waits the longest for compaction is older than `max.compaction.lag.ms` allows.
    CLEANER_DELAY: Gauge Seconds "kafka_log_logcleaner_max_compaction_delay_secs" [],
        jmx "kafka.log:type=LogCleaner,name=max-compaction-delay-secs";
    /// Threads of the cleaner that are configured and do not run.
    CLEANER_DEAD: Gauge Number "kafka_log_logcleaner_deadthreadcount" [],
        jmx "kafka.log:type=LogCleaner,name=DeadThreadCount";
    /// The dirtiest log's dirty part when the cleaner looked last.
    CLEANER_DIRTY: Gauge Percent "kafka_log_logcleanermanager_max_dirty_percent" [],
        jmx "kafka.log:type=LogCleanerManager,name=max-dirty-percent";
    /// How long ago the cleaner looked for logs to be compacted. While it works off what it found it does not look.
    CLEANER_LOOKED: Gauge Milliseconds "kafka_log_logcleanermanager_time_since_last_run_ms" [],
        jmx "kafka.log:type=LogCleanerManager,name=time-since-last-run-ms";
    /// Partitions of a log directory that cannot be compacted.
    UNCLEANABLE: Gauge Number "kafka_log_logcleanermanager_uncleanable_partitions_count" ["logDirectory"],
        jmx "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count";
    /// Bytes of theirs that wait for it.
    UNCLEANABLE_BYTES: Gauge Bytes "kafka_log_logcleanermanager_uncleanable_bytes" ["logDirectory"],
        jmx "kafka.log:type=LogCleanerManager,name=uncleanable-bytes";
    /// Rounds of compaction that have ended.
    CLEANER_ROUNDS: Counter Number "tarn_cleaner_rounds_total" [];
    /// Bytes that compaction has read.
    CLEANER_READ: Counter Bytes "tarn_cleaner_read_bytes_total" [];
    /// Bytes that compaction has written.
    CLEANER_WRITTEN: Counter Bytes "tarn_cleaner_written_bytes_total" [];
    /// Rounds that ended in a panic, which is a defect.
    CLEANER_PANICS: Counter Number "tarn_cleaner_panics_total" [];
    /// Free bytes on the disk of a log directory.
    LOG_DIR_FREE: Gauge Bytes "tarn_log_dir_free_bytes" ["dir"];

    /// 1 where this node is the active controller.
    ACTIVE_CONTROLLER: Gauge Truth "kafka_controller_kafkacontroller_activecontrollercount" [],
        jmx "kafka.controller:type=KafkaController,name=ActiveControllerCount";
    /// Brokers that are registered and take part.
    ACTIVE_BROKERS: Gauge Number "kafka_controller_kafkacontroller_activebrokercount" [],
        jmx "kafka.controller:type=KafkaController,name=ActiveBrokerCount";
    /// Brokers that are registered and do not take part.
    FENCED_BROKERS: Gauge Number "kafka_controller_kafkacontroller_fencedbrokercount" [],
        jmx "kafka.controller:type=KafkaController,name=FencedBrokerCount";
    /// Topics of the cluster.
    GLOBAL_TOPICS: Gauge Number "kafka_controller_kafkacontroller_globaltopiccount" [],
        jmx "kafka.controller:type=KafkaController,name=GlobalTopicCount";
    /// Partitions of the cluster.
    GLOBAL_PARTITIONS: Gauge Number "kafka_controller_kafkacontroller_globalpartitioncount" [],
        jmx "kafka.controller:type=KafkaController,name=GlobalPartitionCount";
    /// Partitions of the cluster without a leader.
    OFFLINE_PARTITIONS: Gauge Number "kafka_controller_kafkacontroller_offlinepartitionscount" [],
        jmx "kafka.controller:type=KafkaController,name=OfflinePartitionsCount";
    /// Partitions of the cluster that another than their first replica leads.
    PREFERRED_IMBALANCE: Gauge Number "kafka_controller_kafkacontroller_preferredreplicaimbalancecount" [],
        jmx "kafka.controller:type=KafkaController,name=PreferredReplicaImbalanceCount";
    /// The offset of the last metadata record that the controller knows to be committed.
    LAST_COMMITTED: Gauge Number "kafka_controller_kafkacontroller_lastcommittedrecordoffset" [],
        jmx "kafka.controller:type=KafkaController,name=LastCommittedRecordOffset";
    /// The offset of the last metadata record that this broker has applied.
    LAST_APPLIED: Gauge Number "kafka_server_broker_metadata_metrics_last_applied_record_offset" [],
        jmx "kafka.server:type=broker-metadata-metrics";
    /// The leader of the metadata quorum.
    RAFT_LEADER: Gauge Number "kafka_server_raft_metrics_current_leader" [],
        jmx "kafka.server:type=raft-metrics";
    /// The epoch of the metadata quorum.
    RAFT_EPOCH: Gauge Number "kafka_server_raft_metrics_current_epoch" [], jmx "kafka.server:type=raft-metrics";
    /// Up to where the metadata log is committed.
    RAFT_HIGH_WATERMARK: Gauge Number "kafka_server_raft_metrics_high_watermark" [],
        jmx "kafka.server:type=raft-metrics";
    /// The end of the leader's metadata log.
    RAFT_LOG_END: Gauge Number "kafka_server_raft_metrics_log_end_offset" [], jmx "kafka.server:type=raft-metrics";

    /// How much there may be of something.
    LIMIT: Gauge Number "tarn_limit" ["name"];
    /// How much there is of something that has a limit.
    USED: Gauge Number "tarn_used" ["name"];
    /// Connections that wait for inbound memory.
    WAITING_FOR_MEMORY: Gauge Number "tarn_connections_waiting_for_memory" [];
    /// Segment files that were closed to make room for others.
    SEGMENTS_CLOSED: Counter Number "tarn_segment_descriptors_closed_total" [];

    /// Tarn, by its version; always 1.
    BUILD_INFO: Gauge Number "tarn_build_info" ["version"];
    /// Processor time of this process, of the system on its behalf included.
    CPU_SECONDS: Counter Seconds "process_cpu_seconds_total" [];
    /// Memory of this process that is resident.
    RESIDENT_BYTES: Gauge Bytes "process_resident_memory_bytes" [];
    /// Open descriptors of this process.
    OPEN_FDS: Gauge Number "process_open_fds" [];
    /// How many descriptors this process may have.
    MAX_FDS: Gauge Number "process_max_fds" [];
    /// When the process began, in seconds since 1970.
    START_TIME: Gauge Seconds "process_start_time_seconds" [];
}
