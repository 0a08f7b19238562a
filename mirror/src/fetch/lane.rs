//! One connection that fetches from one source broker for one mirror: the hot path of mirroring.
//!
//! A response comes in, every whole batch is checked, the next request leaves, the batches go to the cores
//! that own their partitions as they are, and what became of them corrects the plan. Lives on a mirror
//! core as one task; it is told what to fetch through a letter box and reports through another.
//!
//! Invariants:
//! * memory for a response is reserved before its request is sent and given back after its append;
//! * of one partition, at most one answer is being appended while the next is under way, and where an
//!   append fails, what is under way is dropped and asked for again;
//! * what cannot be appended now is never kept;
//! * it waits for its own source broker, for memory, for its letter box, and for the cores that own what it
//!   appends, which answer without waiting for anything; never for a coordinator, the controller or another
//!   source.

mod answers;
mod orders;
mod response_size;
mod search;

pub use orders::{LaneCommand, LaneReport, LaneSpec, Leaving, Left};

use std::collections::{BTreeMap, BTreeSet};
use std::pin::{Pin, pin};
use std::time::Duration;

use futures_lite::future;
use tarn_record::{Offset, TopicIdPartition};
use tarn_runtime::{Queue, sleep, yield_now};
use tarn_transport::{CallLimits, Client, ClientError, ClientOptions};
use tarn_wire::Message;
use tarn_wire::messages::{FetchRequest, FetchResponse};

use super::budget::{Permit, size_of};
use super::plan::{Dialect, FetchPlan, FetchSizes, Naming, Received};
use crate::limits;
use crate::link::{CameUp, Link};
use crate::local_cluster::LocalCluster;
use crate::outage::Outage;
use crate::reasons::Reason;
use crate::source::{SourceError, connections};
use response_size::ResponseSize;
use search::Search;

/// The first version of Fetch that names topics by id.
const TOPIC_IDS_FROM: i16 = 13;
/// The first version of Fetch that compares the last fetched epoch.
const LAST_FETCHED_EPOCH_FROM: i16 = 12;

struct Lane<C> {
    spec: LaneSpec,
    cluster: C,
    plan: FetchPlan,
    link: Link,
    outage: Outage,
    response_bytes: ResponseSize,
    /// Partitions of which nothing was appended yet: what failed before may fail again.
    unproven: BTreeSet<TopicIdPartition>,
    /// Where a fault was met; the second at the same place is for good.
    damaged: BTreeMap<TopicIdPartition, Offset>,
    out_of_step: BTreeMap<TopicIdPartition, Offset>,
    leaving: Vec<Left>,
    /// A response was refused for its size: which partition brings it?
    search: Option<Search>,
    /// The last connection was not lost but closed on this side, because of such a response.
    closed_here: bool,
    /// Requests wait until then: the source's quota, or an answer that made no sense.
    not_before_ms: u64,
    /// How many sessions in a row were over before they brought anything.
    sessions_lost: u32,
    ends: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The lane.
    Stopped,
    /// The connection: the broker is somewhere else.
    Moved,
}

/// A request that is under way.
struct Asked {
    answer: Pin<Box<dyn Future<Output = Result<FetchResponse, ClientError>>>>,
    permit: Permit,
    at_ms: u64,
}

/// Runs a lane until it is told to stop.
pub async fn run<C: LocalCluster>(spec: LaneSpec, cluster: C) {
    let response_bytes = ResponseSize::up_to(spec.config.fetch_response_max_bytes);
    let mut lane = Lane {
        spec,
        cluster,
        plan: FetchPlan::default(),
        link: Link::default(),
        outage: Outage::default(),
        response_bytes,
        unproven: BTreeSet::new(),
        damaged: BTreeMap::new(),
        out_of_step: BTreeMap::new(),
        leaving: Vec::new(),
        search: None,
        closed_here: false,
        not_before_ms: 0,
        sessions_lost: 0,
        ends: None,
    };
    while let Some(client) = lane.connect().await {
        match lane.fetch(&client).await {
            Ok(()) => {}
            Err(error @ ClientError::TooLarge { .. }) => lane.too_large(&error),
            Err(error) => lane.broke(&error.into()),
        }
        client.close();
    }
}

impl<C: LocalCluster> Lane<C> {
    /// A connection, once there is something to fetch and the broker answers; `None` where the lane ends.
    async fn connect(&mut self) -> Option<Client> {
        loop {
            self.obey();
            if self.ends == Some(End::Stopped) {
                return None;
            }
            self.ends = None;
            let wait_ms = self.link.retry_at_ms().saturating_sub(self.now_ms());
            if self.plan.is_empty() {
                self.spec.commands.arrived().await;
                continue;
            }
            if wait_ms > 0 {
                let retry = sleep(Duration::from_millis(wait_ms));
                future::or(retry, self.spec.commands.arrived()).await;
                continue;
            }
            let (endpoint, options) = (self.spec.endpoint.clone(), self.client_options());
            let pinned = self.spec.config.source_cluster_id.clone();
            let connecting = connections::connect(&endpoint, &options, pinned.as_deref());
            match self.awaited_since(self.now_ms(), connecting).await {
                Some(Ok(client)) => {
                    self.came_up(&client);
                    return Some(client);
                }
                Some(Err(error)) => self.broke(&error),
                // The lane is stopped, or the broker is somewhere else: the next round sees which.
                None => {}
            }
        }
    }

    fn client_options(&self) -> ClientOptions {
        let config = &self.spec.config;
        ClientOptions {
            client_id: self.spec.client_id.clone(),
            connect_timeout: config.connect_timeout,
            request_timeout: config.request_timeout,
            receive_buffer: config.receive_buffer_bytes,
            max_response_bytes: self.spec.batch_max_bytes + limits::RESPONSE_ALLOWANCE_BYTES,
            queue: Queue::Mirror,
            ..ClientOptions::default()
        }
    }

    fn came_up(&mut self, client: &Client) {
        // A source without a version in common is refused by the first request.
        let highest = client.version_for::<FetchRequest>().unwrap_or(FetchRequest::MIN_VERSION);
        self.plan.connected(Dialect {
            topic_ids: highest >= TOPIC_IDS_FROM,
            last_fetched_epoch: highest >= LAST_FETCHED_EPOCH_FROM,
        });
        let was_closed_here = std::mem::take(&mut self.closed_here);
        if self.link.came_up() == CameUp::AfterOutage && !was_closed_here {
            self.search = None;
            self.all_leave();
        }
    }

    /// A response was larger than any may be, so the connection had to be closed on this side. That is the
    /// fault of one partition, which is looked for; the source was never away.
    fn too_large(&mut self, error: &ClientError) {
        self.closed_here = true;
        let Some(search) = &mut self.search else {
            self.search = Some(Search::among(self.plan.by_turn()));
            return;
        };
        let Some(partition) = search.too_large() else { return };
        self.search = None;
        if let Some(serial) = self.plan.serial(partition) {
            let (limit, key) = (self.spec.batch_max_bytes, "tarn.mirror.batch.max.bytes");
            let why = format!("its next batch exceeds the {limit} bytes that {key} allows: {error}");
            self.leave(partition, serial, Leaving::TooLarge(why));
            self.report_leaving();
        }
    }

    /// Asks for fewer and fewer partitions until the one is known whose response is too large, which ends the
    /// connection each time, or none is.
    async fn search(&mut self, client: &Client) -> Result<(), ClientError> {
        while let Some(search) = self.search.clone() {
            if search.next().is_empty() {
                // It brings no more than allowed after all, or is gone. Should it be back, that is not at once.
                self.search = None;
                self.hold(self.spec.config.fetch_backoff);
                break;
            }
            let (budget, bytes) = (self.spec.budget.clone(), limits::TIP_RESPONSE_BYTES);
            let Some(mut permit) = self.obeying(async move { budget.reserve(bytes).await }).await else {
                break;
            };
            let sizes = FetchSizes { max_wait_ms: 0, min_bytes: 0, max_bytes: 1, partition_max_bytes: 1 };
            let (request, naming) = self.plan.single(search.next(), sizes);
            let version = version_for(client, naming)?;
            let limits = self.call_limits();
            let asked = client.call_within(&request, version, limits);
            let Some(answer) = self.obeying(asked).await else { break };
            let response = answer?;
            permit.resize(size_of(&response));
            let held_back = Duration::from_millis(u64::try_from(response.throttle_time_ms).unwrap_or(0));
            if response.responses.is_empty() && !held_back.is_zero() {
                self.obeying(sleep(held_back.min(limits::THROTTLE_MAX))).await;
                continue;
            }
            let with_records = self.plan.with_records(&response);
            if let Some(search) = &mut self.search {
                search.answered(&with_records);
            }
        }
        Ok(())
    }

    /// Sends no request for this long.
    fn hold(&mut self, wait: Duration) {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.not_before_ms = self.now_ms().saturating_add(wait_ms);
    }

    fn call_limits(&self) -> CallLimits {
        let config = &self.spec.config;
        CallLimits {
            timeout: config.fetch_wait_max + config.request_timeout,
            max_response_bytes: self.spec.batch_max_bytes + limits::RESPONSE_ALLOWANCE_BYTES,
        }
    }

    /// Every partition goes back, to have its history compared before it is fetched on.
    fn all_leave(&mut self) {
        for (partition, serial) in self.plan.drain() {
            self.let_go(partition);
            self.leaving.push(Left { partition, serial, why: Leaving::Reconnected });
        }
        self.report_leaving();
    }

    fn broke(&mut self, error: &SourceError) {
        self.closed_here = false;
        self.link.failed(self.now_ms(), error, fastrand::f64());
        self.spec.metrics.link_failures.add(1);
        self.show_link();
        (self.spec.report)(LaneReport::LinkBroken);
    }

    fn show_link(&mut self) {
        self.spec.progress.set_link(self.link.trouble().cloned());
        (self.spec.report)(LaneReport::LinkChanged);
        self.say_link();
    }

    /// A source that holds fetches back answers; every other trouble of the link is said when it begins and when it
    /// is over.
    fn say_link(&mut self) {
        let now_ms = self.now_ms();
        let LaneSpec { mirror, endpoint: source, .. } = &self.spec;
        match self.link.trouble().filter(|trouble| trouble.reason != Reason::Throttled) {
            Some(trouble) => {
                if let Some(for_ms) = self.outage.failed(now_ms) {
                    let (reason, why) = (trouble.reason.code(), trouble.message_at(now_ms));
                    let partitions = self.plan.len();
                    tracing::info!(%mirror, %source, partitions, reason, %why, for_ms, "a source broker is not reached");
                }
            }
            None => {
                if let Some(lasted_ms) = self.outage.over(now_ms) {
                    tracing::info!(%mirror, %source, lasted_ms, "a source broker answers again");
                }
            }
        }
    }

    /// Fetches over a connection until it breaks, the broker moves or the lane is stopped.
    async fn fetch(&mut self, client: &Client) -> Result<(), ClientError> {
        self.search(client).await?;
        let mut under_way: Option<Asked> = None;
        loop {
            let mut asked = match under_way.take() {
                Some(asked) => asked,
                None => match self.next_permit().await {
                    Some(permit) => self.ask(client, permit).await?,
                    None => break,
                },
            };
            let answer = self.answer_to(&mut asked).await;
            let answer = answer.inspect_err(|error| self.response_bytes.missed(error));
            let Some(response) = answer? else { break };
            let mut permit = asked.permit;
            permit.resize(size_of(&response));
            self.answered(&response, asked.at_ms);
            let Received::News(news) = self.receive(response) else { continue };
            let taken = self.take(news).await;
            self.report_leaving();
            if self.overlaps(taken.bytes)
                && let Some(permit) = self.spec.budget.try_reserve(self.response_bytes.now())
            {
                under_way = Some(self.ask(client, permit).await?);
            }
            self.append(taken).await;
            self.report_leaving();
            drop(permit);
            self.obey();
        }
        if self.ends == Some(End::Moved) {
            self.all_leave();
        }
        Ok(())
    }

    /// Waits until there is something to fetch, the source's quota allows it and there is memory for the
    /// answer; `None` where the connection ends instead.
    async fn next_permit(&mut self) -> Option<Permit> {
        loop {
            self.obey();
            if self.ends.is_some() {
                return None;
            }
            if self.plan.is_empty() {
                self.spec.commands.arrived().await;
                continue;
            }
            let wait_ms = self.not_before_ms.saturating_sub(self.now_ms());
            if wait_ms > 0 {
                self.obeying(sleep(Duration::from_millis(wait_ms))).await?;
                continue;
            }
            let (budget, bytes) = (self.spec.budget.clone(), self.response_bytes.now());
            let permit = self.obeying(async move { budget.reserve(bytes).await }).await?;
            if !self.plan.is_empty() {
                return Some(permit);
            }
        }
    }

    fn overlaps(&self, bytes: usize) -> bool {
        bytes >= limits::OVERLAP_FROM_BYTES
            && self.ends.is_none()
            && !self.plan.is_empty()
            && self.not_before_ms <= self.now_ms()
    }

    /// Sends the next request.
    async fn ask(&mut self, client: &Client, permit: Permit) -> Result<Asked, ClientError> {
        let config = &self.spec.config;
        let wait_ms = i32::try_from(config.fetch_wait_max.as_millis()).unwrap_or(i32::MAX);
        let max_bytes = i32::try_from(self.response_bytes.now()).unwrap_or(i32::MAX);
        let (request, naming) = self.plan.request(FetchSizes {
            max_wait_ms: wait_ms,
            min_bytes: config.fetch_min_bytes.min(max_bytes),
            max_bytes,
            partition_max_bytes: config.fetch_max_bytes.min(max_bytes),
        });
        let version = version_for(client, naming)?;
        let limits = self.call_limits();
        let client = client.clone();
        let mut answer: Pin<Box<dyn Future<Output = _>>> =
            Box::pin(async move { client.call_within(&request, version, limits).await });
        // The first poll hands the request to the connection, whose task sends it when this one yields; the
        // answer is awaited later.
        let at_ms = self.now_ms();
        match future::poll_once(&mut answer).await {
            None => {
                yield_now().await;
                Ok(Asked { answer, permit, at_ms })
            }
            Some(response) => {
                let response = response?;
                Ok(Asked { answer: Box::pin(async move { Ok(response) }), permit, at_ms })
            }
        }
    }

    /// The answer to a request; `None` where the connection ends instead.
    async fn answer_to(&mut self, asked: &mut Asked) -> Result<Option<FetchResponse>, ClientError> {
        self.awaited_since(asked.at_ms, asked.answer.as_mut()).await.transpose()
    }

    /// Awaits what the source broker was asked at `asked_at_ms` and obeys commands meanwhile; `None` where one of
    /// them ends the connection. A broker that is silent for two waits is shown as not reached while its answer is
    /// still awaited.
    async fn awaited_since<T>(&mut self, asked_at_ms: u64, answer: impl Future<Output = T>) -> Option<T> {
        enum Came<T> {
            Answer(T),
            Commands,
            Late,
        }
        let patience = limits::silent_after(&self.spec.config);
        let (mut answer, mut late) = (pin!(answer), pin!(sleep(patience)));
        let mut is_late = false;
        loop {
            let answer = async { Came::Answer(answer.as_mut().await) };
            let commands = async {
                self.spec.commands.arrived().await;
                Came::Commands
            };
            let came = if is_late {
                future::or(answer, commands).await
            } else {
                let late = async {
                    late.as_mut().await;
                    Came::Late
                };
                future::or(answer, future::or(commands, late)).await
            };
            match came {
                Came::Answer(value) => return Some(value),
                Came::Commands => self.obey(),
                Came::Late => {
                    is_late = true;
                    self.link.late(asked_at_ms);
                    self.show_link();
                }
            }
            if self.ends.is_some() {
                return None;
            }
        }
    }

    /// Awaits something and obeys commands meanwhile; `None` where one of them ends the connection.
    async fn obeying<T>(&mut self, awaited: impl Future<Output = T>) -> Option<T> {
        let mut awaited = pin!(awaited);
        loop {
            let commands = async {
                self.spec.commands.arrived().await;
                None
            };
            match future::or(async { Some(awaited.as_mut().await) }, commands).await {
                Some(value) => return Some(value),
                None => self.obey(),
            }
            if self.ends.is_some() {
                return None;
            }
        }
    }

    /// Does what the letter box says.
    fn obey(&mut self) {
        for command in self.spec.commands.take() {
            match command {
                LaneCommand::Add(assignments) => {
                    for assignment in assignments {
                        self.forget_faults(assignment.partition);
                        self.unproven.insert(assignment.partition);
                        self.plan.add(assignment);
                    }
                }
                LaneCommand::Leave(partition) => self.let_go(partition),
                LaneCommand::Remove(partitions) => {
                    for partition in partitions {
                        self.forget_faults(partition);
                        self.spec.progress.partitions().remove(&partition);
                        self.plan.remove(partition);
                    }
                }
                LaneCommand::Endpoint(endpoint) => {
                    if self.spec.endpoint != endpoint {
                        self.spec.endpoint = endpoint;
                        self.ends.get_or_insert(End::Moved);
                    }
                }
                LaneCommand::Stop => self.ends = Some(End::Stopped),
            }
        }
    }

    fn leave(&mut self, partition: TopicIdPartition, serial: u64, why: Leaving) {
        if self.plan.serial(partition) == Some(serial) {
            self.let_go(partition);
            self.leaving.push(Left { partition, serial, why });
        }
    }

    /// Fetches a partition no more. Its progress stays: a lag that was known is not told smaller because the
    /// partition comes back.
    fn let_go(&mut self, partition: TopicIdPartition) {
        self.plan.remove(partition);
        self.forget_faults(partition);
        self.spec.progress.left(partition);
    }

    fn forget_faults(&mut self, partition: TopicIdPartition) {
        self.unproven.remove(&partition);
        self.damaged.remove(&partition);
        self.out_of_step.remove(&partition);
    }

    fn report_leaving(&mut self) {
        if !self.leaving.is_empty() {
            (self.spec.report)(LaneReport::Left(std::mem::take(&mut self.leaving)));
        }
    }

    fn now_ms(&self) -> u64 {
        self.spec.progress.clock().now_ms()
    }
}

fn version_for(client: &Client, naming: Naming) -> Result<i16, ClientError> {
    match naming {
        Naming::Ids => client.version_for::<FetchRequest>(),
        Naming::Names => client.version_up_to::<FetchRequest>(TOPIC_IDS_FROM - 1),
    }
}
