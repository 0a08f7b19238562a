//! What cores are asked about their logs besides reading them: offsets, epochs, ends, gates.

use std::collections::BTreeMap;
use std::mem;
use std::ops::ControlFlow;
use std::rc::Rc;

use tarn_log::producers::Producer;
use tarn_log::{ExportNote, FoundTimestamp, LogBatches, LogError, LogFiles, RecordCounts, TimestampSearch};
use tarn_mirror::alignment::EpochEnd;
use tarn_mirror::local_cluster::{
    CountOrder, Ending, Export, GateOrder, KnownState, LastPosition, LocalError, LogEnds, MirrorGeneration,
    NotedExport, Suffix,
};
use tarn_record::{BatchHeader, Epoch, Offset, ProducerId, Timestamp, TopicIdPartition};
use tarn_runtime::channel::{Flag, ReplySlot};
use tarn_runtime::{DiskId, Queue, blocking_long, blocking_read, spawn};
use tarn_wire::ErrorCode;

use crate::cold_reads::disk_of;
use crate::core::Core;
use crate::envelope::{ActiveProducer, EpochEndAnswer, OffsetAnswer, OffsetQuery, OffsetSpec};
use crate::limits;
use crate::partitions::Partitions;
use crate::replica::Replica;

/// Answers ListOffsets. Searches by timestamp read the log, so they run on other threads, those of one disk on one.
pub(crate) fn offsets(core: &Rc<Core>, queries: Vec<OffsetQuery>, reply: ReplySlot<Vec<OffsetAnswer>>) {
    let mut answers: Vec<_> = queries.iter().map(|query| OffsetAnswer::unread(query.partition)).collect();
    let searches = look_all(core, &queries, 0..queries.len(), &mut answers);
    if searches.is_empty() {
        let _ = reply.fill(answers);
        return;
    }
    let core = core.clone();
    spawn(Queue::Network, async move {
        search_all(&core, &queries, searches, &mut answers).await;
        // What was found in a log that has gone meanwhile, or not found any more, is no answer.
        for answer in &mut answers {
            if core.partitions().get(answer.partition).is_none() {
                *answer = OffsetAnswer::none(answer.partition, core.absence(answer.partition));
            }
        }
        let _ = reply.fill(answers);
    })
    .detach();
}

/// A search for the answer of a query, which is known by its place.
struct OffsetSearch {
    query: usize,
    files: LogFiles,
    search: TimestampSearch,
}

type SearchesByDisk = BTreeMap<DiskId, Vec<OffsetSearch>>;

/// Answers what needs no search; the searches for the rest.
fn look_all(
    core: &Rc<Core>,
    queries: &[OffsetQuery],
    of: impl IntoIterator<Item = usize>,
    answers: &mut [OffsetAnswer],
) -> SearchesByDisk {
    let mut searches = SearchesByDisk::new();
    for query in of {
        match look(core, &queries[query]) {
            Looked::Found(answer) => answers[query] = answer,
            Looked::Search { disk, files, search } => {
                searches.entry(disk).or_default().push(OffsetSearch { query, files, search });
            }
        }
    }
    searches
}

/// Runs the searches; again those that met a change of their log.
async fn search_all(
    core: &Rc<Core>,
    queries: &[OffsetQuery],
    mut searches: SearchesByDisk,
    answers: &mut [OffsetAnswer],
) {
    for _ in 0..=limits::LOOKUPS_OF_CHANGED_MAX {
        let run = |(disk, searches): (DiskId, Vec<OffsetSearch>)| {
            let run = |one: OffsetSearch| (one.query, one.files, one.search.run());
            let run = move || searches.into_iter().map(run).collect::<Vec<_>>();
            spawn(Queue::Network, blocking_read(disk, run))
        };
        // Each disk is asked before any is waited for.
        let searching: Vec<_> = mem::take(&mut searches).into_iter().map(run).collect();
        let mut changed = Vec::new();
        for searched in searching {
            let Ok(searched) = searched.await else { continue };
            for (query, files, found) in searched {
                let partition = queries[query].partition;
                match found {
                    Ok(found) => answers[query] = OffsetAnswer::of(partition, found),
                    Err(_) if has_changed(core, partition, &files) => changed.push(query),
                    Err(_) => {}
                }
            }
        }
        searches = look_all(core, queries, changed, answers);
        if searches.is_empty() {
            return;
        }
    }
}

fn has_changed(core: &Core, partition: TopicIdPartition, files: &LogFiles) -> bool {
    core.partitions().get(partition).is_some_and(|replica| replica.log().files() != *files)
}

/// An answer, or what is still to be searched for it.
enum Looked {
    Found(OffsetAnswer),
    Search { disk: DiskId, files: LogFiles, search: TimestampSearch },
}

impl Looked {
    fn search(replica: &Replica, search: TimestampSearch) -> Looked {
        Looked::Search { disk: disk_of(replica), files: replica.log().files(), search }
    }
}

impl OffsetAnswer {
    fn of(partition: TopicIdPartition, found: Option<FoundTimestamp>) -> OffsetAnswer {
        let none = OffsetAnswer::none(partition, ErrorCode::NONE);
        let Some(FoundTimestamp { offset, timestamp, leader_epoch }) = found else { return none };
        OffsetAnswer { offset, timestamp, leader_epoch, ..none }
    }

    fn unread(partition: TopicIdPartition) -> OffsetAnswer {
        OffsetAnswer::none(partition, ErrorCode::KAFKA_STORAGE_ERROR)
    }

    /// No offset, for a reason or because there is none.
    pub fn none(partition: TopicIdPartition, error: ErrorCode) -> OffsetAnswer {
        let (offset, timestamp, leader_epoch) = (Offset::NONE, Timestamp::NONE, Epoch::NONE);
        OffsetAnswer { partition, error, offset, timestamp, leader_epoch }
    }
}

fn look(core: &Rc<Core>, query: &OffsetQuery) -> Looked {
    let partitions = core.partitions();
    let Some(replica) = partitions.get(query.partition) else {
        return Looked::Found(OffsetAnswer::none(query.partition, core.absence(query.partition)));
    };
    if let Err(error) = replica.check_epoch(query.current_leader_epoch) {
        return Looked::Found(OffsetAnswer::none(query.partition, error));
    }
    let none = OffsetAnswer::none(query.partition, ErrorCode::NONE);
    let visible = replica.visible_end(query.isolation);
    match query.spec {
        OffsetSpec::Latest => {
            let leader_epoch = epoch_at_end(replica, visible);
            Looked::Found(OffsetAnswer { offset: visible, leader_epoch, ..none })
        }
        OffsetSpec::Earliest => {
            let start = replica.log().start();
            let leader_epoch = replica.log().epochs().at(start).unwrap_or(Epoch::NONE);
            Looked::Found(OffsetAnswer { offset: start, leader_epoch, ..none })
        }
        OffsetSpec::LatestTiered | OffsetSpec::EarliestPendingUpload => Looked::Found(none),
        OffsetSpec::MaxTimestamp => Looked::search(replica, replica.log().max_timestamp(visible)),
        OffsetSpec::AtOrAfter(timestamp) => {
            Looked::search(replica, replica.log().search_timestamp(timestamp, visible))
        }
    }
}

/// The epoch to name with the end of what is visible: the leader's own at the log end.
fn epoch_at_end(replica: &Replica, visible: Offset) -> Epoch {
    if visible >= replica.log().end() && !replica.is_ruled_by_a_mirror() {
        return replica.leader_epoch();
    }
    replica.log().epochs().at(visible.plus(-1)).unwrap_or(Epoch::NONE)
}

/// Answers DescribeProducers (KIP-664).
pub(crate) fn producers(
    here: &Partitions,
    asked: &[TopicIdPartition],
    absence: impl Fn(TopicIdPartition) -> ErrorCode,
) -> Vec<Result<Vec<ActiveProducer>, ErrorCode>> {
    let of = |partition: &TopicIdPartition| match here.get(*partition) {
        Some(replica) => Ok(replica.log().producers().iter().map(ActiveProducer::of).collect()),
        None => Err(absence(*partition)),
    };
    asked.iter().map(of).collect()
}

impl ActiveProducer {
    fn of((id, producer): (ProducerId, &Producer)) -> ActiveProducer {
        ActiveProducer {
            id,
            epoch: producer.epoch(),
            last_sequence: producer.last_sequence(),
            last_timestamp: producer.last_timestamp(),
            coordinator_epoch: producer.coordinator_epoch(),
            transaction_start: producer.transaction_start().unwrap_or(Offset::NONE),
        }
    }
}

/// Answers OffsetForLeaderEpoch (KIP-320).
pub(crate) fn epoch_ends(
    core: &Rc<Core>,
    queries: &[(TopicIdPartition, Epoch, Epoch)],
) -> Vec<EpochEndAnswer> {
    let partitions = core.partitions();
    let answer = |(partition, known, asked): &(TopicIdPartition, Epoch, Epoch)| {
        let none = EpochEndAnswer {
            partition: *partition,
            error: ErrorCode::NONE,
            leader_epoch: Epoch::NONE,
            end_offset: Offset::NONE,
        };
        let Some(replica) = partitions.get(*partition) else {
            return EpochEndAnswer { error: core.absence(*partition), ..none };
        };
        if let Err(error) = replica.check_epoch(*known) {
            return EpochEndAnswer { error, ..none };
        }
        match replica.epoch_end(*asked) {
            Some(found) => EpochEndAnswer { leader_epoch: found.epoch, end_offset: found.end, ..none },
            None => none,
        }
    };
    queries.iter().map(answer).collect()
}

/// Where logs begin and end; `absence` says why a partition is not here.
pub(crate) fn ends(
    partitions: &Partitions,
    asked: &[TopicIdPartition],
    absence: impl Fn(TopicIdPartition) -> LocalError,
) -> Vec<Result<LogEnds, LocalError>> {
    let answer = |partition: &TopicIdPartition| {
        partitions.get(*partition).map(Replica::ends).ok_or_else(|| absence(*partition))
    };
    asked.iter().map(answer).collect()
}

/// Where epochs end in logs; `absence` says why a partition is not here.
pub(crate) fn local_epoch_ends(
    partitions: &Partitions,
    asked: &[(TopicIdPartition, Epoch)],
    absence: impl Fn(TopicIdPartition) -> LocalError,
) -> Vec<Result<EpochEnd, LocalError>> {
    let answer = |&(partition, epoch): &(TopicIdPartition, Epoch)| {
        let replica = partitions.get(partition).ok_or_else(|| absence(partition))?;
        let found = replica.epoch_end(epoch);
        let (epoch, end) = found.map_or((Epoch::NONE, Offset::NONE), |found| (found.epoch, found.end));
        Ok(EpochEnd { epoch, end })
    };
    asked.iter().map(answer).collect()
}

/// Looks up the newest batches of logs.
pub(crate) fn newest_batches(
    core: &Rc<Core>,
    partitions: Vec<TopicIdPartition>,
    reply: ReplySlot<Vec<Result<Option<BatchHeader>, LocalError>>>,
) {
    search(
        core,
        partitions,
        |partition| *partition,
        Lane::Short,
        reply,
        |replica, _| {
            let search = replica.log().newest_batch();
            move || search.run()
        },
    );
}

/// Looks up batches of logs by what comes after them, and reads them, to see that they are what was written.
pub(crate) fn batches_below(
    core: &Rc<Core>,
    places: Vec<(TopicIdPartition, Offset)>,
    reply: ReplySlot<Vec<Result<Option<BatchHeader>, LocalError>>>,
) {
    let place = |(partition, _): &(TopicIdPartition, Offset)| *partition;
    search(core, places, place, Lane::Long, reply, |replica, (_, below)| {
        let search = replica.log().batch_below(*below);
        move || search.run_checked()
    });
}

/// Looks up what was cut off logs last.
pub(crate) fn noted_exports(
    core: &Rc<Core>,
    partitions: Vec<TopicIdPartition>,
    reply: ReplySlot<Vec<Result<Option<NotedExport>, LocalError>>>,
) {
    let broker = core.node().broker_id();
    let noted = move |note: ExportNote| {
        let ExportNote { version, path, from, to, records, bytes } = note;
        let path = path.to_string_lossy().as_ref().into();
        NotedExport { version, export: Export { broker, path, from, to, records, bytes } }
    };
    search(
        core,
        partitions,
        |partition| *partition,
        Lane::Short,
        reply,
        move |replica, _| {
            let question = replica.log().noted_export();
            move || Ok(question.run()?.map(noted))
        },
    );
}

/// Counts what stands in logs. It is given up when the core closes.
pub(crate) fn suffixes(
    core: &Rc<Core>,
    orders: Vec<CountOrder>,
    reply: ReplySlot<Vec<Result<Suffix, LocalError>>>,
) {
    let closing = core.closing().clone();
    search(
        core,
        orders,
        |order| order.partition,
        Lane::Long,
        reply,
        move |replica, order| {
            let log = replica.log();
            let batches = log.batches(order.from.max(log.start()), log.end());
            let (records_max, closing) = (order.records_max, closing.clone());
            move || count(&batches, records_max, &closing)
        },
    );
}

fn count(batches: &LogBatches, records_max: u64, closing: &Flag) -> Result<Suffix, LogError> {
    let mut has_more = closing.is_raised();
    if has_more {
        return Ok(Suffix { has_more, ..Suffix::default() });
    }
    let RecordCounts { records, control_records } = batches.count_while(|counts| {
        has_more = counts.records > records_max || closing.is_raised();
        if has_more { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(Suffix { records: records.min(records_max), control_records, has_more })
}

/// Looks how logs were ended behind these positions.
pub(crate) fn endings(
    core: &Rc<Core>,
    positions: Vec<(TopicIdPartition, LastPosition)>,
    reply: ReplySlot<Vec<Result<Option<Ending>, LocalError>>>,
) {
    search(
        core,
        positions,
        |(partition, _)| *partition,
        Lane::Short,
        reply,
        |replica, (_, position)| {
            let behind = replica.look_behind_position(*position);
            move || Ok(behind.run()?.ending())
        },
    );
}

/// How long a search takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    /// It reads an index and some headers.
    Short,
    /// It goes through a log, or whole batches.
    Long,
}

/// Answers questions about logs. What they ask for may be on the disk only, so it happens on another thread.
fn search<Q, A, S>(
    core: &Rc<Core>,
    questions: Vec<Q>,
    of: impl Fn(&Q) -> TopicIdPartition,
    lane: Lane,
    reply: ReplySlot<Vec<Result<A, LocalError>>>,
    searching: impl Fn(&Replica, &Q) -> S,
) where
    A: Send + 'static,
    S: FnOnce() -> Result<A, LogError> + Send + 'static,
{
    let asked: Vec<TopicIdPartition> = questions.iter().map(of).collect();
    let mut searches: BTreeMap<DiskId, Vec<(usize, S)>> = BTreeMap::new();
    for (place, question) in questions.iter().enumerate() {
        if let Some(replica) = core.partitions().get(asked[place]) {
            searches.entry(disk_of(replica)).or_default().push((place, searching(replica, question)));
        }
    }
    let core = core.clone();
    spawn(Queue::Network, async move {
        let mut found: Vec<Option<Result<A, LogError>>> = asked.iter().map(|_| None).collect();
        let mut refused = None;
        let run = |(disk, searches): (DiskId, Vec<(usize, S)>)| {
            let all =
                move || searches.into_iter().map(|(place, search)| (place, search())).collect::<Vec<_>>();
            spawn(Queue::Network, async move {
                match lane {
                    Lane::Short => blocking_read(disk, all).await,
                    Lane::Long => blocking_long(all).await,
                }
            })
        };
        // Each disk is asked before any is waited for.
        let running: Vec<_> = searches.into_iter().map(run).collect();
        for results in running {
            match results.await {
                Ok(results) => results.into_iter().for_each(|(place, result)| found[place] = Some(result)),
                Err(_) if core.closing().is_raised() => return,
                // A disk that takes no more, or a search that panicked: of the others there are answers.
                Err(error) => refused = Some(error.to_string()),
            }
        }
        let partitions = core.partitions();
        let answer = |(partition, found): (TopicIdPartition, Option<Result<A, LogError>>)| {
            let storage = |reason| LocalError::Storage { partition, reason };
            match (found, &refused) {
                // What was found in a log that has gone meanwhile is no answer.
                _ if partitions.get(partition).is_none() => Err(core.local_absence(partition)),
                (Some(found), _) => found.map_err(|error| storage(error.to_string())),
                (None, Some(reason)) => Err(storage(reason.clone())),
                (None, None) => Err(core.local_absence(partition)),
            }
        };
        let _ = reply.fill(asked.into_iter().zip(found).map(answer).collect());
    })
    .detach();
}

/// Opens and closes gates; `absence` says why a partition is not here.
pub(crate) fn set_gates(
    partitions: &mut Partitions,
    orders: &[GateOrder],
    absence: impl Fn(TopicIdPartition) -> LocalError,
) -> Vec<Result<MirrorGeneration, LocalError>> {
    let mut set = |order: &GateOrder| {
        let generation = partitions.next_generation();
        let replica = partitions.get_mut(order.partition).ok_or_else(|| absence(order.partition))?;
        replica
            .set_gate(order, generation)
            .then_some(generation)
            .ok_or(LocalError::NotLeader(order.partition))
    };
    orders.iter().map(&mut set).collect()
}

/// Takes over what a coordinator knows; `absence` says why a partition is not here.
pub(crate) fn set_known_states(
    partitions: &mut Partitions,
    states: &[(TopicIdPartition, KnownState)],
    absence: impl Fn(TopicIdPartition) -> LocalError,
) -> Vec<Result<(), LocalError>> {
    let mut set = |(partition, known): &(TopicIdPartition, KnownState)| {
        let replica = partitions.get_mut(*partition).ok_or_else(|| absence(*partition))?;
        let is_set = replica.set_known_state(*known);
        partitions.news_of(*partition);
        if is_set { Ok(()) } else { Err(LocalError::NotLeader(*partition)) }
    };
    states.iter().map(&mut set).collect()
}
