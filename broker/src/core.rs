//! What one core runs: its partitions, its connections, its mailbox and the few tasks around them.
//!
//! Everything here belongs to one executor and is shared by `Rc`; a cell is never borrowed across an
//! await. Other cores are reached by envelopes only.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tarn_image::{MetadataImage, TopicImage};
use tarn_mirror::local_cluster::LocalError;
use tarn_quorum::{Answered, ImageUpdate, Undecided};
use tarn_record::{Offset, Timestamp, TopicId, TopicIdPartition};
use tarn_runtime::channel::{Flag, LocalNotify, Receiver, Sender};
use tarn_runtime::{CoreId, Queue, sleep, spawn, wall_clock_ms};
use tarn_transport::remarks::Remarks;
use tarn_wire::{ErrorCode, Str};

use crate::cleaning::Ledger;
use crate::coordinators::forgetting;
use crate::coordinators::mirror::MirrorMachines;
use crate::delete_records::{self, UnkeptStarts};
use crate::envelope::Envelope;
use crate::expiring::expire_producers;
use crate::interest::InterestId;
use crate::metadata_view::MetadataView;
use crate::metrics::CoreMetrics;
use crate::node::Node;
use crate::partitions::Partitions;
use crate::published::Published;
use crate::removing::{Removing, remove_when_due};
use crate::retaining::delete_old_segments;
use crate::router::Placement;
use crate::rules::TopicRules;
use crate::sessions::{Session, SessionLimits, Sessions};
use crate::topic_changes::TopicChanges;
use crate::unopened::Unopened;
use crate::{
    cleaning, closing, cold_reads, collecting, dir_sizes, failing, flushing, limits, lookups, metrics,
    mirrored, placing, stopping, truncating,
};

/// One core of a broker.
pub struct Core {
    id: CoreId,
    node: Arc<Node>,
    metrics: Arc<CoreMetrics>,
    peers: Vec<Sender<Envelope>>,
    placement: Placement,
    began: Instant,
    image: RefCell<Arc<MetadataImage>>,
    topic_changes: RefCell<TopicChanges>,
    rules: RefCell<HashMap<TopicId, Arc<TopicRules>>>,
    partitions: RefCell<Partitions>,
    unopened: RefCell<Unopened>,
    sessions: RefCell<Sessions>,
    machines: RefCell<MirrorMachines>,
    creating: RefCell<HashSet<Str>>,
    cleanings: RefCell<Ledger>,
    cleaning_ended: LocalNotify,
    next_interest: Cell<u64>,
    producer_ids: RefCell<Range<i64>>,
    flush_wanted: LocalNotify,
    flush_ended: LocalNotify,
    closing: Flag,
    openings: LocalNotify,
    removing: Removing,
    unkept_starts: UnkeptStarts,
    remarks: RefCell<Remarks<flushing::Again>>,
    refusals: RefCell<Remarks<i16>>,
    applied: Cell<Offset>,
    image_moved: LocalNotify,
}

impl Core {
    /// A core that has no partitions yet. `peers` are the mailboxes of all cores, in the order of their
    /// ids, this one's included.
    pub fn new(id: CoreId, node: Arc<Node>, peers: Vec<Sender<Envelope>>, placement: Placement) -> Rc<Core> {
        let limits = SessionLimits {
            sessions: (node.fetch_sessions_max() / peers.len().max(1)).max(1),
            partitions: limits::FETCH_SESSION_PARTITIONS_PER_CORE,
        };
        Rc::new(Core {
            id,
            metrics: node.metrics_of(id),
            node,
            peers,
            placement,
            began: Instant::now(),
            image: RefCell::default(),
            topic_changes: RefCell::new(TopicChanges::new(limits::TOPIC_CHANGES)),
            rules: RefCell::default(),
            partitions: RefCell::default(),
            unopened: RefCell::default(),
            sessions: RefCell::new(Sessions::new(id, limits)),
            machines: RefCell::default(),
            creating: RefCell::default(),
            cleanings: RefCell::default(),
            cleaning_ended: LocalNotify::default(),
            next_interest: Cell::new(u64::from(id.0) << 48),
            producer_ids: RefCell::new(0..0),
            flush_wanted: LocalNotify::default(),
            flush_ended: LocalNotify::default(),
            closing: Flag::default(),
            openings: LocalNotify::default(),
            removing: Removing::default(),
            unkept_starts: UnkeptStarts::default(),
            remarks: RefCell::default(),
            refusals: RefCell::default(),
            applied: Cell::new(Offset::NONE),
            image_moved: LocalNotify::default(),
        })
    }

    /// Starts the core's own tasks: the mailbox, the flusher, the clock.
    pub fn start(self: &Rc<Core>, mailbox: Receiver<Envelope>) {
        spawn(Queue::Network, self.clone().drain(mailbox)).detach();
        spawn(Queue::Network, flushing::keep_promises(self.clone())).detach();
        spawn(Queue::Background, flushing::bound_recovery(self.clone())).detach();
        spawn(Queue::Background, expire_producers(self.clone())).detach();
        spawn(Queue::Network, delete_records::keep_starts(self.clone())).detach();
        spawn(Queue::Background, delete_old_segments(self.clone())).detach();
        spawn(Queue::Background, remove_when_due(self.clone())).detach();
        // Clients wait for it, though none of them is there: it has its share of a core that others keep busy.
        spawn(Queue::Mirror, placing::keep_opening(self.clone())).detach();
        spawn(Queue::Background, self.clone().tick()).detach();
    }

    /// This core's number.
    pub fn id(&self) -> CoreId {
        self.id
    }

    /// What all cores of the node share.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Its instruments.
    pub fn metrics(&self) -> &CoreMetrics {
        &self.metrics
    }

    /// The newest metadata that this core has.
    pub fn image(&self) -> Arc<MetadataImage> {
        self.image.borrow().clone()
    }

    /// The newest metadata, as handlers read it.
    pub fn view(&self) -> MetadataView {
        MetadataView::new(self.image())
    }

    /// Asks the controller, and waits until this core has seen what it decided: who is told that a topic
    /// is there finds it there.
    ///
    /// # Errors
    /// Where the controller does not answer.
    pub async fn decided<R>(
        &self,
        asked: impl Future<Output = Result<Answered<R>, Undecided>>,
    ) -> Result<R, Undecided> {
        let answered = asked.await?;
        self.image_at(answered.offset).await;
        Ok(answered.response)
    }

    /// True where this core's partitions are what the metadata up to `offset` says.
    pub(crate) fn is_at(&self, offset: Offset) -> bool {
        self.applied.get() >= offset
    }

    /// Waits until this core's partitions are what the metadata up to `offset` says.
    pub(crate) async fn image_at(&self, offset: Offset) {
        loop {
            let moved = self.image_moved.wait();
            if self.is_at(offset) {
                return;
            }
            moved.await;
        }
    }

    /// The rules of a topic that are in force.
    pub fn rules(&self, topic: &TopicImage) -> Arc<TopicRules> {
        let mut rules = self.rules.borrow_mut();
        let found = rules.entry(topic.id);
        found.or_insert_with(|| Arc::new(TopicRules::of(&self.image(), &self.node, topic))).clone()
    }

    /// What a topic's rules rest on has changed.
    pub(crate) fn forget_rules(&self, topic: TopicId) {
        self.rules.borrow_mut().remove(&topic);
    }

    /// The partitions of this core.
    pub fn partitions(&self) -> RefMut<'_, Partitions> {
        self.partitions.borrow_mut()
    }

    /// The partitions of this core whose logs could not be opened.
    pub fn unopened(&self) -> RefMut<'_, Unopened> {
        self.unopened.borrow_mut()
    }

    /// The fetch sessions of this core's connections.
    pub fn sessions(&self) -> RefMut<'_, Sessions> {
        self.sessions.borrow_mut()
    }

    /// Which topics have changed lately.
    pub fn topic_changes(&self) -> Ref<'_, TopicChanges> {
        self.topic_changes.borrow()
    }

    /// The mirror coordinators of this core's partitions of `__mirror_state`.
    pub fn machines(&self) -> RefMut<'_, MirrorMachines> {
        self.machines.borrow_mut()
    }

    /// The topics that this core has the controller create because clients have asked for them.
    pub(crate) fn creating(&self) -> RefMut<'_, HashSet<Str>> {
        self.creating.borrow_mut()
    }

    /// What this core knows of its compacted logs.
    pub(crate) fn cleanings(&self) -> RefMut<'_, Ledger> {
        self.cleanings.borrow_mut()
    }

    /// Tells who waits that a round of compaction has ended.
    pub(crate) fn cleaning_ended(&self) -> &LocalNotify {
        &self.cleaning_ended
    }

    /// The producer ids that this core may give away.
    pub fn producer_ids(&self) -> RefMut<'_, Range<i64>> {
        self.producer_ids.borrow_mut()
    }

    /// The core that owns a partition.
    pub fn owner(&self, partition: TopicIdPartition) -> CoreId {
        self.placement.owner(partition.topic_id, partition.partition)
    }

    /// Every core that owns partitions.
    pub fn partition_cores(&self) -> &[CoreId] {
        self.placement.cores()
    }

    /// Milliseconds since this core was made; for deadlines.
    pub fn clock_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// A name for the interest of a new fetch session, never used before.
    pub fn next_interest(&self) -> InterestId {
        let next = self.next_interest.get();
        self.next_interest.set(next + 1);
        InterestId(next)
    }

    /// Ends a fetch session of this core.
    pub fn close_session(self: &Rc<Core>, id: i32) {
        let removed = self.sessions().remove(id);
        removed.into_iter().for_each(|session| self.close_interest_of(&session));
    }

    /// Ends a session's interest on every core that has a part of it.
    pub fn close_interest_of(self: &Rc<Core>, session: &Session) {
        if session.cores.is_empty() {
            return;
        }
        let (core, interest, owners) = (self.clone(), session.interest, session.cores.clone());
        spawn(Queue::Network, async move {
            for owner in owners {
                core.deliver(owner, Envelope::CloseInterest(interest)).await;
            }
        })
        .detach();
    }

    /// Why a partition is not among those of this core.
    pub(crate) fn absence(&self, partition: TopicIdPartition) -> ErrorCode {
        match self.view().check_leader(self.node.broker_id(), partition) {
            Ok(()) if self.unopened.borrow().has_failed(partition) => ErrorCode::KAFKA_STORAGE_ERROR,
            // It is about to be here.
            Ok(()) => ErrorCode::NOT_LEADER_OR_FOLLOWER,
            Err(error) => error,
        }
    }

    /// The same for mirroring.
    pub(crate) fn local_absence(&self, partition: TopicIdPartition) -> LocalError {
        match self.absence(partition) {
            ErrorCode::KAFKA_STORAGE_ERROR => {
                LocalError::Storage { partition, reason: "its log is not open".to_owned() }
            }
            _ => LocalError::NotLeader(partition),
        }
    }

    /// Hands an envelope to a core; to this one without a hop. It waits while the mailbox is full.
    pub async fn deliver(self: &Rc<Core>, to: CoreId, envelope: Envelope) {
        if to == self.id {
            self.handle(envelope);
        } else if let Some(peer) = self.peers.get(usize::from(to.0)) {
            // A mailbox is closed only while the node stops; the reply slot then says so.
            let _ = peer.send(envelope).await;
        }
    }

    /// Does what an envelope says. It never waits: what takes time goes to a task.
    pub fn handle(self: &Rc<Core>, envelope: Envelope) {
        let now = Timestamp(wall_clock_ms());
        match envelope {
            Envelope::Append(request) => {
                self.partitions().append(request, now, |partition| self.absence(partition));
                self.wake_flusher();
            }
            Envelope::Markers(request) => {
                self.partitions().append_markers(request, now, |partition| self.absence(partition));
                self.wake_flusher();
            }
            Envelope::Producers(partitions, reply) => {
                let absence = |partition| self.absence(partition);
                let _ = reply.fill(lookups::producers(&self.partitions(), &partitions, absence));
            }
            Envelope::Fetch(read) => {
                let reads = self.partitions().fetch(read, |partition| self.absence(partition));
                cold_reads::look_up(self, reads);
            }
            Envelope::CloseInterest(interest) => self.partitions().close_interest(interest),
            Envelope::Arm(interest, wake) => self.partitions().arm(interest, &wake),
            Envelope::Offsets(queries, reply) => lookups::offsets(self, queries, reply),
            Envelope::EpochEnds(queries, reply) => {
                let _ = reply.fill(lookups::epoch_ends(self, &queries));
            }
            Envelope::DeleteRecords(orders, reply) => delete_records::delete(self, &orders, now, reply),
            Envelope::DirSizes(described, reply) => dir_sizes::describe(self, described, reply),
            Envelope::Mirrored(appends, reply) => mirrored::append(self, appends, reply),
            Envelope::Ends(partitions, reply) => {
                let absence = |partition| self.local_absence(partition);
                let _ = reply.fill(lookups::ends(&self.partitions(), &partitions, absence));
            }
            Envelope::NewestBatches(partitions, reply) => lookups::newest_batches(self, partitions, reply),
            Envelope::BatchesBelow(places, reply) => lookups::batches_below(self, places, reply),
            Envelope::NotedExports(partitions, reply) => lookups::noted_exports(self, partitions, reply),
            Envelope::LocalEpochEnds(epochs, reply) => {
                let absence = |partition| self.local_absence(partition);
                let _ = reply.fill(lookups::local_epoch_ends(&self.partitions(), &epochs, absence));
            }
            Envelope::Suffixes(orders, reply) => lookups::suffixes(self, orders, reply),
            Envelope::Endings(positions, reply) => lookups::endings(self, positions, reply),
            Envelope::Gates(gates, reply) => {
                let absence = |partition| self.local_absence(partition);
                let _ = reply.fill(lookups::set_gates(&mut self.partitions(), &gates, absence));
            }
            Envelope::Flush(partitions, reply) => stopping::flush(self, partitions, reply),
            Envelope::EndLogs(orders, reply) => stopping::end_logs(self, orders, reply),
            Envelope::TruncateLogs(orders, reply) => truncating::truncate_logs(self, orders, reply),
            Envelope::KnownStates(states, reply) => {
                let absence = |partition| self.local_absence(partition);
                let _ = reply.fill(lookups::set_known_states(&mut self.partitions(), &states, absence));
            }
            Envelope::Coordinator(call) => crate::coordinators::mirror::answer(self, call),
            Envelope::Clean(call) => cleaning::answer(self, call),
            Envelope::Checkpoint(reply) => collecting::collect(self, reply),
            Envelope::DirFailed(dir) => failing::take_offline(self, dir),
            Envelope::Measure(asked) => metrics::measure(self, asked),
            Envelope::Close(reply) => {
                spawn(Queue::Network, closing::close(self.clone(), reply)).detach();
            }
        }
    }

    /// The metadata as it is when the core starts: opens what it owns.
    pub async fn begin(self: &Rc<Core>, image: Arc<MetadataImage>) {
        *self.image.borrow_mut() = image;
        placing::open_all(self).await;
        self.applied.set(self.image().provenance().offset);
    }

    /// Takes new metadata over as it is published.
    pub async fn follow(self: Rc<Core>, published: Arc<Published>) {
        loop {
            for update in published.next().await {
                self.on_image(&update).await;
            }
        }
    }

    async fn on_image(self: &Rc<Core>, update: &ImageUpdate) {
        let before = self.image.replace(update.image.clone());
        self.topic_changes.borrow_mut().note(&update.image, &update.delta);
        forgetting::on_metadata(self, update);
        placing::apply(self, &before, &update.delta).await;
        self.applied.set(update.image.provenance().offset);
        self.image_moved.notify_all();
    }

    async fn drain(self: Rc<Core>, mut mailbox: Receiver<Envelope>) {
        let mut envelopes = Vec::new();
        while mailbox.recv_many(&mut envelopes, 256).await > 0 {
            for envelope in envelopes.drain(..) {
                self.handle(envelope);
            }
            tarn_runtime::yield_if_needed().await;
        }
    }

    /// Wakes the flusher where somebody waits for a flush.
    pub fn wake_flusher(&self) {
        if self.partitions.borrow().wants_flush() {
            self.flush_wanted.notify_all();
        }
    }

    /// Tells the flusher that there is something to flush.
    pub(crate) fn flush_wanted(&self) -> &LocalNotify {
        &self.flush_wanted
    }

    /// Tells who waits that a flush has ended.
    pub(crate) fn flush_ended(&self) -> &LocalNotify {
        &self.flush_ended
    }

    /// Raised when the logs are about to be closed for good: what takes long for one of them is given up.
    pub(crate) fn closing(&self) -> &Flag {
        &self.closing
    }

    /// Which lines are not to be said too often.
    pub(crate) fn remarks(&self) -> RefMut<'_, Remarks<flushing::Again>> {
        self.remarks.borrow_mut()
    }

    /// The same of batches that were refused, by error code.
    pub(crate) fn refusals(&self) -> RefMut<'_, Remarks<i16>> {
        self.refusals.borrow_mut()
    }

    /// Tells who waits that a log could not be opened, or that an attempt has ended.
    pub(crate) fn openings(&self) -> &LocalNotify {
        &self.openings
    }

    /// Waits until the log of none of these partitions is being opened again.
    pub(crate) async fn openings_ended(&self, partitions: &[TopicIdPartition]) {
        self.opening_ended(|under_way| partitions.contains(under_way)).await;
    }

    /// Has no log be opened again from now on, and waits for those that are.
    pub(crate) async fn stop_opening(&self) {
        self.unopened().stop();
        self.opening_ended(|_| true).await;
    }

    async fn opening_ended(&self, is_meant: impl Fn(&TopicIdPartition) -> bool) {
        loop {
            let ended = self.openings.wait();
            if !self.unopened.borrow().under_way().iter().any(&is_meant) {
                return;
            }
            ended.await;
        }
    }

    /// Waits until no flush of these partitions is in flight.
    pub(crate) async fn flushes_ended(&self, partitions: &[TopicIdPartition]) {
        loop {
            let ended = self.flush_ended.wait();
            if !partitions.iter().any(|partition| self.partitions.borrow().is_flushing(*partition)) {
                return;
            }
            ended.await;
        }
    }

    /// Gives up a log, and its directory, of which a truncation has dropped a part, and failed: what is known of the
    /// rest is wrong, and whatever was appended to it would be. The next start reads the log again.
    pub(crate) fn give_up_half_cut(self: &Rc<Core>, partitions: impl IntoIterator<Item = TopicIdPartition>) {
        let half_cut = self.partitions.borrow().half_cut(partitions);
        if let Some(partition) = half_cut {
            failing::log_failed(self, partition, &"a log was cut only in part");
        }
    }

    /// Has the files removed that logs have let go, when their time has come.
    pub(crate) fn remove_files(&self) {
        let removals = self.partitions.borrow_mut().take_removals();
        let now_ms = self.clock_ms();
        removals.into_iter().for_each(|removal| self.removing.later(removal, now_ms));
    }

    /// What waits to be removed.
    pub(crate) fn removing(&self) -> &Removing {
        &self.removing
    }

    /// Who waits for log starts to be on the disk.
    pub(crate) fn unkept_starts(&self) -> &UnkeptStarts {
        &self.unkept_starts
    }

    /// Answers the requests whose time is up. It never waits for anything but time.
    async fn tick(self: Rc<Core>) {
        loop {
            let now_ms = self.clock_ms();
            self.partitions().expire(now_ms);
            let next =
                self.partitions().next_deadline_ms().unwrap_or(u64::MAX).clamp(now_ms + 5, now_ms + 50);
            sleep(Duration::from_millis(next - now_ms)).await;
        }
    }
}
