//! The mirror coordinator: `tarn_mirror::coordinator` on the cores that own `__mirror_state`.

use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;
use tarn_log::{Aborted, FirstBatch, ReadOrder};
use tarn_mirror::coordinator::{MirrorCoordinator, StateRequest, StateResponse};
use tarn_record::validate::{ProduceRules, client_batch};
use tarn_record::{Offset, Timestamp, TimestampType, TopicIdPartition, batches};
use tarn_runtime::channel::{self, ReplySlot};
use tarn_runtime::{Queue, blocking, spawn, wall_clock_ms};
use tarn_wire::ErrorCode;
use tracing::{debug, error};

use super::forgetting;
use super::runtime::{CoordinatorRecord, Decided, Machine, Machines, NotServed, batch_of, replay_batch};
use crate::core::Core;
use crate::envelope::{Acks, AppendRequest, Produced};
use crate::limits;

/// Bytes of the log that are replayed at a time.
const REPLAY_BYTES: usize = 1024 * 1024;

/// A request to the coordinator of one partition of `__mirror_state`.
#[derive(Debug)]
pub struct CoordinatorCall {
    /// The partition of `__mirror_state`.
    pub partition: TopicIdPartition,
    /// What is asked.
    pub request: StateRequest,
    /// Where the answer goes, or NOT_COORDINATOR and its kin.
    pub reply: ReplySlot<Result<StateResponse, ErrorCode>>,
}

/// The coordinators of one core, and the requests that wait for one to be loaded.
#[derive(Debug, Default)]
pub struct MirrorMachines {
    machines: Machines<MirrorCoordinator>,
    pending: HashMap<TopicIdPartition, Vec<CoordinatorCall>>,
}

impl Machine for MirrorCoordinator {
    type Request = StateRequest;
    type Response = StateResponse;

    fn replay(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), String> {
        MirrorCoordinator::replay(self, key, value)
    }

    fn handle(&mut self, request: StateRequest) -> (StateResponse, Vec<CoordinatorRecord>) {
        MirrorCoordinator::handle(self, request)
    }
}

impl MirrorMachines {
    /// The partition is gone: what waits for it is told.
    pub fn unload(&mut self, partition: TopicIdPartition) {
        self.machines.unload(partition, None);
        for call in self.pending.remove(&partition).unwrap_or_default() {
            let _ = call.reply.fill(Err(ErrorCode::NOT_COORDINATOR));
        }
    }
}

/// Answers a call; loads the coordinator first where it is not there yet.
pub fn answer(core: &Rc<Core>, call: CoordinatorCall) {
    if let StateRequest::Forget(_, version) = call.request
        && !core.is_at(Offset(version))
    {
        spawn(Queue::Background, answer_at(core.clone(), Offset(version), call)).detach();
        return;
    }
    if core.partitions().get(call.partition).is_none() {
        let _ = call.reply.fill(Err(ErrorCode::NOT_COORDINATOR));
        return;
    }
    if is_about_what_is_over(core, &call.request) {
        // The writer reads again, and by then has the metadata that say so.
        let _ = call.reply.fill(Err(ErrorCode::FENCED_STATE_EPOCH));
        return;
    }
    let partition = call.partition;
    let decided = core.machines().machines.handle(partition, call.request.clone());
    match decided {
        Ok(decided) => commit(core, partition, decided, call.reply),
        Err(not_served) => {
            core.machines().pending.entry(partition).or_default().push(call);
            if not_served == NotServed::NotLoaded {
                let incarnation = core.machines().machines.begin_loading(partition);
                spawn(Queue::Background, load(core.clone(), partition, incarnation)).detach();
            }
        }
    }
}

fn is_about_what_is_over(core: &Rc<Core>, request: &StateRequest) -> bool {
    let StateRequest::Write(mirror, writes) = request else { return false };
    let image = core.image();
    writes.iter().any(|(one, write)| forgetting::is_over(&image, mirror, *one, write.state.state_version))
}

/// Answers a call once this core's metadata are at `offset`.
async fn answer_at(core: Rc<Core>, offset: Offset, call: CoordinatorCall) {
    core.image_at(offset).await;
    answer(&core, call);
}

/// Sends the answer once everything it rests on is committed.
fn commit(
    core: &Rc<Core>,
    partition: TopicIdPartition,
    decided: Decided<StateResponse>,
    reply: ReplySlot<Result<StateResponse, ErrorCode>>,
) {
    let (slot, committed) = channel::reply::<Vec<Produced>>();
    let deadline_ms = core.clock_ms().saturating_add(core.node().coordinator_write_ms());
    if decided.records.is_empty() {
        core.partitions().wait_for_commit(partition, slot, deadline_ms);
    } else if let Err(error) = append(core, partition, &decided.records, slot, deadline_ms) {
        core.machines().machines.unload(partition, Some(decided.incarnation));
        let _ = reply.fill(Err(error));
        return;
    }
    let core = core.clone();
    spawn(Queue::Network, async move {
        let failed = match committed.await {
            Ok(produced) => {
                produced.iter().map(|produced| produced.error).find(|error| *error != ErrorCode::NONE)
            }
            Err(_) => Some(ErrorCode::NOT_COORDINATOR),
        };
        if failed.is_some() {
            core.machines().machines.unload(partition, Some(decided.incarnation));
        }
        let answer = match failed {
            Some(_) => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
            None => Ok(decided.response),
        };
        let _ = reply.fill(answer);
    })
    .detach();
}

fn append(
    core: &Rc<Core>,
    partition: TopicIdPartition,
    records: &[CoordinatorRecord],
    reply: ReplySlot<Vec<Produced>>,
    deadline_ms: u64,
) -> Result<(), ErrorCode> {
    let now = Timestamp(wall_clock_ms());
    let rules = ProduceRules {
        max_batch_bytes: limits::COORDINATOR_BATCH_BYTES,
        segment_bytes: i32::MAX as usize,
        compacted: true,
        timestamp_type: TimestampType::CreateTime,
        before_max_ms: i64::MAX,
        after_max_ms: i64::MAX,
        zstd_allowed: true,
        decompressed_limit: limits::COORDINATOR_BATCH_BYTES,
        record_max: usize::MAX,
        recompress: None,
    };
    let batch = client_batch(batch_of(records, now), &rules, now).map_err(|invalid| {
        error!(%partition, message = invalid.message, "a coordinator's batch is not valid");
        ErrorCode::UNKNOWN_SERVER_ERROR
    })?;
    let items = vec![(partition, batch)];
    let request = AppendRequest { items, acks: Acks::All, deadline_ms, reply };
    core.partitions().append(request, now, |partition| core.absence(partition));
    core.wake_flusher();
    Ok(())
}

/// Replays the log of a partition, then answers what has waited for it.
async fn load(core: Rc<Core>, partition: TopicIdPartition, incarnation: u64) {
    let loaded = replay_log(&core, partition).await;
    let pending = core.machines().pending.remove(&partition).unwrap_or_default();
    match loaded {
        Ok((machine, records)) => {
            debug!(partition = %partition.partition, records, "mirror coordinator loaded");
            forgetting::on_loaded(&core, partition, &machine);
            core.machines().machines.loaded(partition, incarnation, machine);
            pending.into_iter().for_each(|call| answer(&core, call));
        }
        Err(reason) => {
            error!(partition = %partition.partition, reason, "mirror coordinator not loaded");
            core.machines().machines.unload(partition, Some(incarnation));
            for call in pending {
                let _ = call.reply.fill(Err(ErrorCode::COORDINATOR_NOT_AVAILABLE));
            }
        }
    }
}

async fn replay_log(
    core: &Rc<Core>,
    partition: TopicIdPartition,
) -> Result<(MirrorCoordinator, usize), String> {
    let mut machine = MirrorCoordinator::default();
    let mut records = 0;
    let mut next: Option<Offset> = None;
    loop {
        let search = {
            let partitions = core.partitions();
            let replica = partitions.get(partition).ok_or("the partition has gone")?;
            let (max_bytes, first_batch) = (REPLAY_BYTES, FirstBatch::MayBeLarger);
            let (from, upper) = (next.unwrap_or(replica.log().start()), replica.log().end());
            let order = ReadOrder { from, max_bytes, first_batch, upper, aborted: Aborted::Unnamed };
            replica.log().read_search(&order)
        };
        let read = move || {
            let plan = search.run().map_err(|error| error.to_string())?.plan;
            plan.read().map_err(|error| error.to_string())
        };
        let bytes = blocking(read).await.map_err(|error| error.to_string())??;
        if bytes.is_empty() {
            return Ok((machine, records));
        }
        for batch in batches(bytes) {
            let batch = batch.map_err(|error| error.to_string())?;
            replay_batch(&mut machine, &batch, limits::COORDINATOR_BATCH_BYTES)?;
            records += batch.header().record_count.max(0) as usize;
            next = Some(batch.header().next_offset());
        }
    }
}
