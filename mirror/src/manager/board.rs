//! How everything stands, for whoever describes a mirror: written by the manager, read from any core.
//!
//! Offsets and lags are read from the lanes themselves, so that nothing is written here while records flow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tarn_record::{BrokerId, Offset, TopicIdPartition};

use crate::fetch::progress::{Clock, LaneProgress};
use crate::known::SourceKnown;
use crate::reasons::Reason;
use crate::state::MirrorState;

/// How one partition stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its state as it is lived here, which a restart may put back to an earlier one.
    pub state: MirrorState,
    /// Which retry it is in; 0 for none, −1 where an operator is waited for.
    pub retry_attempt: i16,
    /// Why it is not well.
    pub reason: Option<Reason>,
    /// The same as a sentence.
    pub message: Option<String>,
    /// The source's high watermark in its last answer.
    pub source_high_watermark: Option<Offset>,
    /// The high watermark here after the last append.
    pub local_high_watermark: Option<Offset>,
    /// For how long the source has had something that is missing here.
    pub lag_ms: Option<u64>,
    /// How long ago the source last answered.
    pub last_fetch_age_ms: Option<u64>,
}

/// How a task stands that follows the source beside the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskStanding {
    /// Its name.
    pub name: &'static str,
    /// `waiting` until it was first tried, then `ok` or `failing`.
    pub state: &'static str,
    /// Why it fails.
    pub reason: Option<Reason>,
    /// The same as a sentence.
    pub message: Option<String>,
    /// How long ago it last succeeded.
    pub last_success_age_ms: Option<u64>,
}

/// What the manager writes of a partition.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) state: MirrorState,
    pub(super) retry_attempt: i16,
    pub(super) trouble: Option<(Reason, Arc<str>)>,
    /// Shown where there is no trouble.
    pub(super) notice: Option<(Reason, Arc<str>)>,
    pub(super) is_in_lane: bool,
    /// The source broker that leads it.
    pub(super) source: Option<BrokerId>,
    /// It waits for the source's metadata, whatever else is wrong.
    pub(super) waits_for_source: bool,
}

/// What the source is asked beside records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Question {
    /// Its metadata.
    Metadata,
    /// This broker, about the histories of what it leads.
    Histories(BrokerId),
    /// The same, about where they part from those here.
    CommonPoints(BrokerId),
}

/// A task that follows the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TaskName {
    /// The source's metadata.
    Metadata,
    /// Topics and partitions.
    Topics,
}

#[derive(Debug)]
pub(super) struct Board {
    clock: Clock,
    mirrors: Mutex<BTreeMap<Arc<str>, MirrorBoard>>,
}

#[derive(Debug, Default)]
struct MirrorBoard {
    partitions: BTreeMap<TopicIdPartition, (Written, Option<Arc<LaneProgress>>)>,
    tasks: BTreeMap<TaskName, Task>,
    /// Since when questions have been out.
    asked_at_ms: BTreeMap<Question, u64>,
    /// After how long without an answer the source is not reached.
    silent_after_ms: u64,
    /// Why the mirror does not run: its configuration cannot be used.
    unusable: Option<Arc<str>>,
    /// The clusters from which the source has what it is asked for.
    upstream: BTreeSet<String>,
}

#[derive(Clone, Debug, Default)]
struct Task {
    succeeded_at_ms: Option<u64>,
    trouble: Option<(Reason, Arc<str>)>,
    /// How many looks have led to another cluster since one led to the source. Those that led nowhere are not
    /// counted: they say nothing of which cluster it is.
    looks_elsewhere: i16,
}

impl Board {
    pub(super) fn new(clock: Clock) -> Board {
        Board { clock, mirrors: Mutex::default() }
    }

    /// A mirror begins, whose source is not reached where it has not answered for so long.
    pub(super) fn begin(&self, mirror: &Arc<str>, silent_after: Duration) {
        let tasks = [(TaskName::Metadata, Task::default()), (TaskName::Topics, Task::default())];
        let silent_after_ms = u64::try_from(silent_after.as_millis()).unwrap_or(u64::MAX);
        let board = MirrorBoard { tasks: tasks.into(), silent_after_ms, ..MirrorBoard::default() };
        self.mirrors().insert(mirror.clone(), board);
    }

    /// The mirror does not run, for its configuration cannot be used.
    pub(super) fn cannot_begin(&self, mirror: &Arc<str>, why: &str) {
        let board = MirrorBoard { unusable: Some(Arc::from(why)), ..MirrorBoard::default() };
        self.mirrors().insert(mirror.clone(), board);
    }

    pub(super) fn end(&self, mirror: &str) {
        self.mirrors().remove(mirror);
    }

    /// Writes how a partition stands; `lane` where it has been given to another one.
    pub(super) fn write(
        &self,
        mirror: &str,
        partition: TopicIdPartition,
        written: Written,
        lane: Option<Arc<LaneProgress>>,
    ) {
        if let Some(board) = self.mirrors().get_mut(mirror) {
            let known = board.partitions.remove(&partition).and_then(|(_, lane)| lane);
            board.partitions.insert(partition, (written, lane.or(known)));
        }
    }

    /// What the lane that a partition was last given to knows of the source.
    pub(super) fn known_of_source(&self, mirror: &str, partition: TopicIdPartition) -> Option<SourceKnown> {
        let lane = self.mirrors().get(mirror)?.partitions.get(&partition)?.1.clone()?;
        let lag = lane.of(partition)?.0?;
        Some(SourceKnown::of(&lag, self.clock.now_ms()))
    }

    pub(super) fn erase(&self, mirror: &str, partition: TopicIdPartition) {
        if let Some(board) = self.mirrors().get_mut(mirror) {
            board.partitions.remove(&partition);
        }
    }

    /// A question is out from now on.
    pub(super) fn asked(&self, mirror: &str, question: Question) {
        let now_ms = self.clock.now_ms();
        if let Some(board) = self.mirrors().get_mut(mirror) {
            board.asked_at_ms.insert(question, now_ms);
        }
    }

    /// It is answered, or given up.
    pub(super) fn answered(&self, mirror: &str, question: Question) {
        if let Some(board) = self.mirrors().get_mut(mirror) {
            board.asked_at_ms.remove(&question);
        }
    }

    pub(super) fn task(&self, mirror: &str, name: TaskName, result: Result<(), (Reason, Arc<str>)>) {
        let now_ms = self.clock.now_ms();
        if let Some(task) = self.mirrors().get_mut(mirror).map(|board| board.tasks.entry(name).or_default()) {
            match result {
                Ok(()) => *task = Task { succeeded_at_ms: Some(now_ms), ..Task::default() },
                Err(trouble) => {
                    task.trouble = Some(trouble);
                    if task.leads_elsewhere() {
                        task.looks_elsewhere = task.looks_elsewhere.saturating_add(1);
                    }
                }
            }
        }
    }

    pub(super) fn upstream(&self, mirror: &str, clusters: BTreeSet<String>) {
        if let Some(board) = self.mirrors().get_mut(mirror) {
            board.upstream = clusters;
        }
    }

    pub(super) fn clusters_upstream(&self, mirror: &str) -> Vec<String> {
        let mirrors = self.mirrors();
        mirrors.get(mirror).map(|board| board.upstream.iter().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn standings(&self, mirror: &str, partitions: &[TopicIdPartition]) -> Vec<Option<Standing>> {
        let mirrors = self.mirrors();
        let Some(board) = mirrors.get(mirror) else { return vec![None; partitions.len()] };
        let now_ms = self.clock.now_ms();
        partitions.iter().map(|partition| board.standing(*partition, now_ms)).collect()
    }

    pub(super) fn tasks(&self, mirror: &str) -> Vec<TaskStanding> {
        let now_ms = self.clock.now_ms();
        let mirrors = self.mirrors();
        let Some(board) = mirrors.get(mirror) else { return Vec::new() };
        if let Some(why) = &board.unusable {
            return vec![TaskStanding {
                name: "configuration",
                state: "failing",
                reason: Some(Reason::ConfigInvalid),
                message: Some(why.to_string()),
                last_success_age_ms: None,
            }];
        }
        let standing = |(name, task): (&TaskName, &Task)| {
            let silent = || match name {
                TaskName::Metadata => board.silence(Question::Metadata, now_ms),
                TaskName::Topics => None,
            };
            let trouble = task.trouble.clone().or_else(silent);
            TaskStanding {
                name: match name {
                    TaskName::Metadata => "metadata",
                    TaskName::Topics => "topics",
                },
                state: match (&trouble, task.succeeded_at_ms) {
                    (Some(_), _) => "failing",
                    (None, Some(_)) => "ok",
                    (None, None) => "waiting",
                },
                reason: trouble.as_ref().map(|(reason, _)| *reason),
                message: trouble.map(|(_, message)| message.to_string()),
                last_success_age_ms: task.succeeded_at_ms.map(|at| now_ms.saturating_sub(at)),
            }
        };
        board.tasks.iter().map(standing).collect()
    }

    fn mirrors(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, MirrorBoard>> {
        self.mirrors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Task {
    /// The source's addresses lead to another cluster. Nobody can mirror that, so partitions show FAILED; it
    /// is over as soon as they lead back.
    fn leads_elsewhere(&self) -> bool {
        self.trouble.as_ref().is_some_and(|(reason, _)| *reason == Reason::SourceClusterChanged)
    }
}

impl Written {
    /// False for what is paused or stopped, to which no trouble of the source or of the mirror's configuration is any.
    fn needs_source(&self) -> bool {
        !matches!(
            self.state,
            MirrorState::Pausing | MirrorState::Paused | MirrorState::Stopping | MirrorState::Stopped
        )
    }
}

impl MirrorBoard {
    /// That a question is out for too long.
    fn silence(&self, question: Question, now_ms: u64) -> Option<(Reason, Arc<str>)> {
        let silent_ms = now_ms.saturating_sub(*self.asked_at_ms.get(&question)?);
        let whom = match question {
            Question::Metadata => "the source",
            Question::Histories(_) | Question::CommonPoints(_) => "the source broker",
        };
        let said = || Arc::from(format!("{whom} has not answered for {silent_ms} ms"));
        (silent_ms >= self.silent_after_ms).then(|| (Reason::SourceUnreachable, said()))
    }

    /// That the source has become another cluster comes first; then a partition's own trouble, its link's,
    /// that of finding the source at all, that it does not answer, and what it has missed.
    fn standing(&self, partition: TopicIdPartition, now_ms: u64) -> Option<Standing> {
        let known = self.partitions.get(&partition);
        let needs_source = known.is_none_or(|(written, _)| written.needs_source());
        if let Some(why) = self.unusable.as_ref().filter(|_| needs_source) {
            return Some(Standing {
                state: MirrorState::Failed,
                retry_attempt: -1,
                reason: Some(Reason::ConfigInvalid),
                message: Some(why.to_string()),
                source_high_watermark: None,
                local_high_watermark: None,
                lag_ms: None,
                last_fetch_age_ms: None,
            });
        }
        let (written, lane) = known?;
        let metadata = self.tasks.get(&TaskName::Metadata);
        let elsewhere = metadata.filter(|task| written.waits_for_source && task.leads_elsewhere());
        let of_the_link = || {
            let trouble = lane.as_ref().filter(|_| written.is_in_lane)?.link()?;
            Some((trouble.reason, trouble.message_at(now_ms).into()))
        };
        let of_the_source = || {
            let is_waiting = !written.is_in_lane && needs_source && written.state != MirrorState::Failed;
            metadata.filter(|_| is_waiting)?.trouble.clone()
        };
        let of_its_silence = || {
            let is_waiting = written.waits_for_source && written.state != MirrorState::Failed;
            let silence = |question| self.silence(question, now_ms);
            match written.source {
                Some(_) if written.is_in_lane => None,
                Some(broker) => {
                    silence(Question::Histories(broker)).or_else(|| silence(Question::CommonPoints(broker)))
                }
                None if is_waiting => silence(Question::Metadata),
                None => None,
            }
        };
        let trouble = elsewhere
            .and_then(|task| task.trouble.clone())
            .or_else(|| written.trouble.clone())
            .or_else(of_the_link)
            .or_else(of_the_source)
            .or_else(of_its_silence)
            .or_else(|| written.notice.clone());
        let (lag, local_high_watermark) =
            lane.as_ref().and_then(|lane| lane.of(partition)).unwrap_or_default();
        Some(Standing {
            state: elsewhere.map_or(written.state, |_| MirrorState::Failed),
            retry_attempt: elsewhere.map_or(written.retry_attempt, |task| task.looks_elsewhere),
            reason: trouble.as_ref().map(|(reason, _)| *reason),
            message: trouble.map(|(_, message)| message.to_string()),
            source_high_watermark: lag.map(|lag| lag.source_high_watermark),
            local_high_watermark,
            lag_ms: lag.map(|lag| lag.ms),
            last_fetch_age_ms: lag.map(|lag| lag.answer_age_ms),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::progress::{LinkTrouble, Trouble};
    use tarn_record::{PartitionIndex, TopicId};

    #[test]
    fn a_partition_shows_the_trouble_of_its_link_while_it_stays_mirroring() {
        let board = board();
        let lane = LaneProgress::new(board.clock);
        let mirroring = Written {
            state: MirrorState::Mirroring,
            retry_attempt: 0,
            trouble: None,
            notice: None,
            is_in_lane: true,
            source: None,
            waits_for_source: false,
        };
        board.write("m", partition(), mirroring, Some(lane.clone()));
        lane.set_link(Some(LinkTrouble {
            reason: Reason::SourceUnreachable,
            what: Trouble::Said("refused".into()),
            since_ms: 0,
            attempts: 1,
        }));
        let standing = standing(&board);
        assert_eq!(
            (standing.state, standing.reason),
            (MirrorState::Mirroring, Some(Reason::SourceUnreachable))
        );
        assert_eq!((standing.lag_ms, standing.message.as_deref()), (None, Some("refused")));
    }

    #[test]
    fn a_partition_that_waits_shows_why_the_source_is_not_found() {
        let board = board();
        board.write("m", partition(), waiting(), None);
        assert_eq!(standing(&board).reason, None);
        board.task("m", TaskName::Metadata, Err((Reason::SourceUnreachable, "nobody".into())));
        assert_eq!(standing(&board).reason, Some(Reason::SourceUnreachable));
        assert_eq!(board.tasks("m")[0].state, "failing");
        board.task("m", TaskName::Metadata, Ok(()));
        assert_eq!((standing(&board).reason, board.tasks("m")[0].state), (None, "ok"));
    }

    #[test]
    fn what_is_stopped_or_paused_has_no_trouble_with_its_source_or_configuration() {
        let board = board();
        let stopping = || Written { state: MirrorState::Stopping, waits_for_source: false, ..waiting() };
        board.write("m", partition(), stopping(), None);
        board.task("m", TaskName::Metadata, Err((Reason::SourceUnreachable, "nobody".into())));
        assert_eq!((standing(&board).state, standing(&board).reason), (MirrorState::Stopping, None));
        board.cannot_begin(&Arc::from("m"), "fetch.max.bytes is no number");
        assert_eq!(standing(&board).reason, Some(Reason::ConfigInvalid));
        for state in [MirrorState::Stopping, MirrorState::Stopped, MirrorState::Pausing, MirrorState::Paused]
        {
            board.write("m", partition(), Written { state, ..stopping() }, None);
            assert_eq!((standing(&board).state, standing(&board).reason), (state, None));
        }
        board.write("m", partition(), waiting(), None);
        assert_eq!(standing(&board).reason, Some(Reason::ConfigInvalid));
    }

    #[test]
    fn a_partition_that_waits_for_a_source_that_is_another_cluster_shows_failed_until_it_is_back() {
        let board = board();
        let told_so = || (Reason::SourceClusterChanged, Arc::from("it is north"));
        let before = Some((Reason::SourceLeaderUnknown, Arc::from("it was asked")));
        board.write("m", partition(), Written { trouble: before, ..waiting() }, None);
        for attempt in 1..=2 {
            board.task("m", TaskName::Metadata, Err((Reason::SourceUnreachable, "nobody".into())));
            assert_eq!(standing(&board).state, MirrorState::LogAlignment, "it is only unreachable");
            board.task("m", TaskName::Metadata, Err(told_so()));
            let now = standing(&board);
            assert_eq!((now.state, now.retry_attempt), (MirrorState::Failed, attempt));
            assert_eq!(now.reason, Some(Reason::SourceClusterChanged));
        }
        let failed = (Reason::SourceTruncated, Arc::from("it lost records"));
        let terminal = Written {
            state: MirrorState::Failed,
            retry_attempt: -1,
            trouble: Some(failed),
            waits_for_source: false,
            ..waiting()
        };
        board.write("m", partition(), terminal, None);
        let now = standing(&board);
        assert_eq!((now.reason, now.retry_attempt), (Some(Reason::SourceTruncated), -1));
        board.write("m", partition(), waiting(), None);
        board.task("m", TaskName::Metadata, Ok(()));
        assert_eq!((standing(&board).state, standing(&board).reason), (MirrorState::LogAlignment, None));
    }

    #[test]
    fn a_mirror_that_cannot_begin_says_why_until_it_can() {
        let board = board();
        board.cannot_begin(&Arc::from("m"), "fetch.max.bytes is no number");
        let failed = standing(&board);
        assert_eq!((failed.state, failed.reason), (MirrorState::Failed, Some(Reason::ConfigInvalid)));
        assert_eq!(failed.message.as_deref(), Some("fetch.max.bytes is no number"));
        assert_eq!((board.tasks("m")[0].name, board.tasks("m")[0].state), ("configuration", "failing"));
        board.begin(&Arc::from("m"), Duration::from_secs(60));
        assert_eq!(board.standings("m", &[partition()]), [None]);
        assert_eq!(board.tasks("m")[0].state, "waiting");
    }

    #[test]
    fn a_partition_that_waits_for_a_silent_source_says_for_how_long_it_has_been_silent_by_now() {
        let board = Board::new(Clock::start());
        board.begin(&Arc::from("m"), Duration::from_millis(20));
        let broker = BrokerId(3);
        for (waiting, question) in [
            (waiting(), Question::Metadata),
            (
                Written { source: Some(broker), waits_for_source: false, ..waiting() },
                Question::Histories(broker),
            ),
            (
                Written { source: Some(broker), waits_for_source: false, ..waiting() },
                Question::CommonPoints(broker),
            ),
        ] {
            board.write("m", partition(), waiting, None);
            board.asked("m", question);
            assert_eq!(standing(&board).reason, None, "it has just been asked");
            let first = await_message(&board, None);
            assert_eq!(standing(&board).reason, Some(Reason::SourceUnreachable));
            await_message(&board, Some(&first));
            let task = &board.tasks("m")[0];
            let is_failing = question == Question::Metadata;
            assert_eq!(
                (task.state, task.reason.is_some()),
                (if is_failing { "failing" } else { "waiting" }, is_failing)
            );
            board.answered("m", question);
            assert_eq!(standing(&board).reason, None);
        }
    }

    /// What is said, once that is another thing than before.
    fn await_message(board: &Board, before: Option<&String>) -> String {
        let began = std::time::Instant::now();
        while began.elapsed() < std::time::Duration::from_secs(30) {
            if let Some(said) = standing(board).message.filter(|said| before != Some(said)) {
                return said;
            }
            std::thread::yield_now();
        }
        panic!("still {before:?}")
    }

    #[test]
    fn what_is_not_mirrored_here_has_no_standing() {
        assert_eq!(board().standings("m", &[partition()]), [None]);
        assert_eq!(board().standings("other", &[partition()]), [None]);
    }

    fn waiting() -> Written {
        Written {
            state: MirrorState::LogAlignment,
            retry_attempt: 0,
            trouble: None,
            notice: None,
            is_in_lane: false,
            source: None,
            waits_for_source: true,
        }
    }

    fn board() -> Board {
        let board = Board::new(Clock::start());
        board.begin(&Arc::from("m"), Duration::from_secs(60));
        board
    }

    fn standing(board: &Board) -> Standing {
        board.standings("m", &[partition()]).remove(0).expect("it was written")
    }

    fn partition() -> TopicIdPartition {
        TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(0) }
    }
}
