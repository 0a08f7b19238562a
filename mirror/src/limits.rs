//! The limits of this crate: how much a source can make it hold, ask or wait, and how often it may try.
//!
//! What an operator may move comes from the mirror's and the node's configuration; the other numbers are
//! fixed here.

use std::time::Duration;

use tarn_image::config::mirror::MirrorConfig;

/// The response asked for where nothing is left to fetch: a lane at the tip reserves no more than this.
pub const TIP_RESPONSE_BYTES: usize = 256 << 10;

/// The least response asked for, over a link that cuts larger ones: a source sends one batch, whatever its size.
pub const RESPONSE_BYTES_MIN: usize = 1 << 10;

/// After how many filled responses in a row twice as much is tried over a link that has cut some: the number
/// doubles with each cut, from the smaller up to the larger.
pub const WHOLE_RESPONSES: (u32, u32) = (4, 64);

/// Responses of at least this size are appended while the next request is under way. Below it, appending
/// is done before a request could be written.
pub const OVERLAP_FROM_BYTES: usize = 64 << 10;

/// What a response may hold beside its largest batch: headers, and the batches of other partitions.
pub const RESPONSE_ALLOWANCE_BYTES: usize = 16 << 20;

/// The batches that one request fetches again to compare them, where they are more than one.
pub const COMPARED_BATCHES_BYTES: usize = 4 << 20;

/// After so many answers, of the source and of the log here, the search for the point where they part ends with nothing.
/// Halving a log of 2⁶³ offsets takes 126, and every older leader epoch that only one of them has three.
pub const SEARCH_ANSWERS_MAX: u32 = 400;

/// So many records of those that only a log here has are counted, or as many as the configuration gives up: how many
/// there are above that makes no difference.
pub const COUNTED_RECORDS_MAX: u64 = 10_000;

/// So many records are counted before topics are begun with, of all of a request together.
pub const COUNTED_TOGETHER_MAX: u64 = 10_000_000;

/// For how long a request to begin with topics waits until they are counted: a client waits not much longer.
pub const COUNTED_WITHIN: Duration = Duration::from_secs(10);

/// How often in a row a log is truncated before it is left to an operator: what is truncated once and compared goes on.
pub const TRUNCATIONS_IN_A_ROW_MAX: u8 = 3;

/// The largest response to a question about metadata, offsets or configurations.
pub const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Partitions in one request to a coordinator, the controller or a source broker.
pub const PARTITIONS_PER_REQUEST_MAX: usize = 2000;

/// Records of a deleted mirror that a coordinator forgets at a time, give or take those of one partition.
pub const FORGOTTEN_AT_ONCE: usize = 2000;

/// Topics whose configurations are asked for in one request.
pub const DESCRIBED_TOPICS_MAX: usize = 200;

/// How much larger than the source's the leader epoch here must at least be (kip1279 §6.4).
pub const EPOCH_MARGIN: i32 = 3;

/// How far above the source's the leader epoch here is raised.
pub const EPOCH_LEAP: i32 = 10;

/// The longest a source may hold a request back by its quota before the lane asks again.
pub const THROTTLE_MAX: Duration = Duration::from_secs(30);
/// A source's quota that holds fetches back for less is not shown, in milliseconds.
pub const THROTTLE_SHOWN_MS: u64 = 1_000;

/// After how long without an answer a source is shown as not reached: two of its waits.
pub fn silent_after(config: &MirrorConfig) -> Duration {
    2 * config.fetch_wait_max.max(Duration::from_millis(100))
}

/// The first and the longest wait before a source broker is tried again.
pub const RECONNECT_MS: (u64, u64) = (50, 3_000);

/// The first and the longest wait between two looks at the source's metadata that something asked for.
pub const REFRESH_MS: (u64, u64) = (50, 3_000);

/// The first and the longest wait of a partition that waits for its own cluster.
pub const HOLD_MS: (u64, u64) = (20, 2_000);

/// The longest wait for an answer of this cluster itself.
pub const LOCAL_ANSWER_MAX: Duration = Duration::from_secs(30);

/// How long to wait for the metadata to show a raised leader epoch before it is asked for again.
pub const EPOCH_SHOWN_WITHIN_MS: u64 = 5_000;

/// How far apart two looks must be that both miss a topic before it counts as deleted: a broker that has
/// just started knows no topics yet.
pub const DELETED_LOOKS_APART_MS: u64 = 5_000;

/// How far apart the beginnings of outages of one thing are said at least.
pub const SAY_AGAIN_MS: u64 = 10_000;

/// The first and the longest wait before it is said again that an outage goes on.
pub const SAY_STILL_MS: (u64, u64) = (60_000, 3_600_000);

/// How long news of a mirror's partitions is gathered before it is said.
pub const NEWS_GATHERED_MS: u64 = 500;
/// How far apart it is said at least.
pub const NEWS_APART_MS: u64 = 5_000;

/// How long a lane without partitions keeps its connection.
pub const IDLE_LANE_MS: u64 = 60_000;

/// How many aborted transactions a report of a stop names; it counts them all.
pub const ABORTED_IN_REPORT: usize = 100;
