//! Fetch: what consumers and replicas read (Kafka key 1, KIP-227 sessions).
//!
//! The connection's core keeps the session's identity and adds up the bytes; the owning cores find what
//! is new. A request without a session is first answered from what is there, without a trace on those cores.
//! A session whose last response was full asks one core after the other, until the response is full again.
//! A fetch that has found too little arms its partitions and sleeps until one has news or its
//! time is up. See `sessions` and `interest` for the two halves.

mod found;
mod held;
mod respond;

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use tarn_record::{Epoch, Offset, PartitionIndex, TopicId, TopicIdPartition};
use tarn_runtime::channel::Reply;
use tarn_runtime::{CoreId, timeout};
use tarn_transport::{Answer, Outcome};
use tarn_wire::messages::FetchRequest;
use tarn_wire::messages::fetch_request::FetchPartition;
use tarn_wire::{ErrorCode, RequestHeader};

use self::found::Found;
use self::held::HeldSession;
use crate::core::Core;
use crate::dispatch::frame;
use crate::envelope::{Envelope, FetchAnswer, FetchRead};
use crate::interest::{FetchedPartition, Scope, Wanted};
use crate::limits::COLD_READ_WAIT_MAX;
use crate::metadata_view::MetadataView;
use crate::named::{Lookup, TopicKey, TopicNaming};
use crate::replica::Isolation;
use crate::sessions::{Changes, FINAL_EPOCH, INITIAL_EPOCH};

/// The first version that names topics by id.
const BY_ID: i16 = 13;
/// The first version with sessions.
const SESSIONS: i16 = 7;
/// The replica id of a debugging consumer, which may read what is not committed.
const DEBUGGING: i32 = -2;

/// Serves one request.
pub async fn handle(core: Rc<Core>, header: RequestHeader, request: FetchRequest) -> Outcome {
    let naming = if header.api_version >= BY_ID { TopicNaming::ById } else { TopicNaming::ByName };
    let held = match session_of(&core, &header, &request, naming) {
        Ok(held) => held,
        Err(error) => {
            let answer = frame(&core, &header, &respond::refused(error));
            core.metrics().requests.split(header.api_key, Duration::ZERO, Duration::ZERO);
            return Outcome::Answer(Box::pin(async move { answer }));
        }
    };
    Outcome::Answer(Box::pin(serve(core, header, request, held)))
}

/// The session that the request is for, or one of its own.
fn session_of(
    core: &Rc<Core>,
    header: &RequestHeader,
    request: &FetchRequest,
    naming: TopicNaming,
) -> Result<HeldSession, ErrorCode> {
    let (id, epoch) = (request.session_id, request.session_epoch);
    if header.api_version < SESSIONS || epoch == FINAL_EPOCH || epoch == INITIAL_EPOCH {
        if id != 0 {
            core.close_session(id);
        }
        let wants_session = header.api_version >= SESSIONS && epoch == INITIAL_EPOCH;
        return Ok(if wants_session {
            let partitions = request.topics.iter().map(|topic| topic.partitions.len()).sum();
            HeldSession::create(core, naming, partitions)
        } else {
            HeldSession::alone(core, naming)
        });
    }
    HeldSession::take(core, id, epoch, naming)
}

async fn serve(
    core: Rc<Core>,
    header: RequestHeader,
    request: FetchRequest,
    mut held: HeldSession,
) -> Answer {
    let began = tarn_runtime::now();
    let mut waited_for_news = Duration::ZERO;
    let max_wait = Duration::from_millis(request.max_wait_ms.max(0) as u64);
    let scope = held.scope();
    let order = take_over(&core, &mut held, &request);
    held.fit_into_cache();
    let max_bytes = (request.max_bytes.max(0) as usize).min(core.node().fetch_max_bytes());
    let limits = Limits {
        // One batch is given however few bytes are asked for, so waiting for one byte always ends.
        min_bytes: (request.min_bytes.max(0) as usize).min(max_bytes.max(1)),
        max_bytes,
        isolation: isolation(&request),
    };
    let mut found = Found::new(order, scope);
    let mut next = if held.may_be_read_once() { Scope::Once } else { scope };
    loop {
        let asked = ask(&core, &mut held, next, &limits, &mut found).await;
        let waited = began.elapsed();
        let named = &held.session().named;
        let is_urgent = found.is_urgent() || named.has_missing() || named.is_empty();
        // Without anything to send it is worth waiting for the disk longer than for others who produce.
        let waits_for_disk = found.waits_for_disk();
        let enough = found.bytes() >= limits.min_bytes && !waits_for_disk || is_urgent;
        let max_wait = if waits_for_disk { max_wait.max(COLD_READ_WAIT_MAX) } else { max_wait };
        if enough || waited >= max_wait || !asked {
            break;
        }
        if next == Scope::Once {
            // From now on the cores have to know who waits.
            next = scope;
            continue;
        }
        next = Scope::News;
        arm(&core, &held).await;
        let wake = held.session().wake.clone();
        let is_woken = timeout(max_wait - waited, wake.raised()).await.is_ok();
        if !waits_for_disk {
            waited_for_news += began.elapsed().saturating_sub(waited);
        }
        if !is_woken {
            break;
        }
    }
    held.session_mut().is_behind = limits.are_reached_by(&found);
    let cut = found.fit(limits.max_bytes);
    held.session_mut().untold.requeue.extend(cut);
    let response = respond::response(&core, &held, found, header.api_version);
    held.finish();
    let worked = began.elapsed().saturating_sub(waited_for_news);
    core.metrics().requests.split(header.api_key, worked, waited_for_news);
    frame(&core, &header, &response)
}

/// What a request asks for besides its partitions.
struct Limits {
    min_bytes: usize,
    max_bytes: usize,
    isolation: Isolation,
}

impl Limits {
    fn are_reached_by(&self, found: &Found) -> bool {
        found.bytes() >= self.max_bytes.max(1)
    }
}

fn isolation(request: &FetchRequest) -> Isolation {
    let replica =
        if request.replica_id == -1 { request.replica_state.replica_id } else { request.replica_id };
    match (replica, request.isolation_level) {
        (DEBUGGING, _) => Isolation::Replica,
        (_, 1) => Isolation::ReadCommitted,
        _ => Isolation::ReadUncommitted,
    }
}

/// What the partitions of a request stand for, in its order.
pub(super) type Order = Vec<TopicIdPartition>;

/// Brings the session up to the request: what has changed of its topics, what is forgotten, what is new or
/// wanted otherwise.
fn take_over(core: &Rc<Core>, held: &mut HeldSession, request: &FetchRequest) -> Order {
    let (naming, view) = (held.session().naming, core.view());
    held.look_up_again();
    held.forget(request.forgotten_topics_data.iter().flat_map(|topic| {
        let key = key_of(&view, naming, &topic.topic, topic.topic_id);
        topic.partitions.iter().map(move |index| (key.clone(), PartitionIndex(*index)))
    }));
    held.reserve_exact(request.topics.iter().map(|topic| topic.partitions.len()).sum());
    let mut order = Vec::new();
    for topic in &request.topics {
        let key = key_of(&view, naming, &topic.topic, topic.topic_id);
        for asked in &topic.partitions {
            let index = PartitionIndex(asked.partition);
            let found = view.find(&key, index);
            held.want(&key, index, Lookup { found, wanted: wanted(asked) });
            order.extend(found);
        }
    }
    order
}

/// How a session names a topic; the name of one that is there is shared with the metadata.
fn key_of(view: &MetadataView, naming: TopicNaming, name: &str, id: uuid::Uuid) -> TopicKey {
    match naming {
        TopicNaming::ById => TopicKey::Id(TopicId(id)),
        TopicNaming::ByName => {
            let known = view.topic_by_name(name).map(|topic| topic.name.clone());
            TopicKey::Name(known.unwrap_or_else(|| name.into()))
        }
    }
}

fn wanted(asked: &FetchPartition) -> Wanted {
    Wanted {
        fetch_offset: Offset(asked.fetch_offset),
        max_bytes: asked.partition_max_bytes.max(0) as u32,
        current_leader_epoch: Epoch(asked.current_leader_epoch),
        last_fetched_epoch: Epoch(asked.last_fetched_epoch),
    }
}

/// Asks the cores that own the session's partitions; false where none does.
async fn ask(
    core: &Rc<Core>,
    held: &mut HeldSession,
    scope: Scope,
    limits: &Limits,
    found: &mut Found,
) -> bool {
    held.session().wake.lower();
    found.lookups = 0;
    let mut changes = held.take_changes();
    let mut owners: BTreeSet<CoreId> = held.session().cores.iter().chain(changes.keys()).copied().collect();
    let is_anyone_asked = !owners.is_empty();
    if scope == Scope::News
        && held.session().is_behind
        && let Some(owner) = held.session_mut().turn_of(&owners)
    {
        let told = changes.remove(&owner).unwrap_or_default();
        let answer = read(core, held, owner, told, scope, limits).await;
        let answer = answer.await.unwrap_or_default();
        let has_records = |one: &&FetchedPartition| !one.records.is_empty();
        let served = answer.partitions.iter().filter(has_records).count();
        held.session_mut().took_turn(served, answer.waiting);
        found.take_in(answer);
        if limits.are_reached_by(found) {
            held.session_mut().tell_later(changes);
            return true;
        }
        owners.remove(&owner);
    }
    // The other cores first: they wake up while this one reads.
    let here = owners.take(&core.id());
    let mut answers = Vec::with_capacity(owners.len() + 1);
    for owner in owners.into_iter().chain(here) {
        let told = match scope {
            Scope::Once => changes.get(&owner).cloned().unwrap_or_default(),
            Scope::All | Scope::News => changes.remove(&owner).unwrap_or_default(),
        };
        answers.push(read(core, held, owner, told, scope, limits).await);
    }
    for answer in answers {
        found.take_in(answer.await.unwrap_or_default());
    }
    held.session_mut().tell_later(changes);
    is_anyone_asked
}

/// Asks one core, which is told what has changed. It keeps that for the session, unless it is asked once.
async fn read(
    core: &Rc<Core>,
    held: &mut HeldSession,
    owner: CoreId,
    told: Changes,
    scope: Scope,
    limits: &Limits,
) -> Reply<FetchAnswer> {
    if scope != Scope::Once {
        held.session_mut().cores.insert(owner);
    }
    let (reply, answer) = tarn_runtime::channel::reply();
    let read = FetchRead {
        interest: held.session().interest,
        wake: held.session().wake.clone(),
        upserts: told.upserts,
        forgets: told.forgets,
        requeue: told.requeue,
        scope,
        max_bytes: limits.max_bytes,
        isolation: limits.isolation,
        reply,
    };
    core.deliver(owner, Envelope::Fetch(read)).await;
    answer
}

async fn arm(core: &Rc<Core>, held: &HeldSession) {
    let session = held.session();
    for owner in &session.cores {
        core.deliver(*owner, Envelope::Arm(session.interest, session.wake.clone())).await;
    }
}
