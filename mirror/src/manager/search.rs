//! Finding where logs diverge from those of one source broker, many at once: what each search has to know next is asked
//! in one request for all, here and there in turn, until all have ended. What comparing has found open is compared
//! once more before: whatever else is decided follows from one look at both logs.

use std::collections::BTreeMap;

use tarn_record::{BatchHeader, Epoch, Offset, TopicIdPartition};
use tarn_transport::Endpoint;
use tarn_wire::ErrorCode;

use super::compare::{
    Asked, Looked, batch_limits, in_order, look, refused_by_source, sends_nothing, unreached,
};
use super::job::{Item, Outcome, Site};
use super::policies::with_policies;
use crate::alignment::{BatchThere, Content, EpochEnd, SourceLog};
use crate::common_point::{Ask, CommonPoint, Logs, Proof, Search};
use crate::divergence::{Rest, judge};
use crate::limits;
use crate::local_cluster::{CountOrder, LocalCluster, LocalError};
use crate::source::SourceError;
use crate::source::batches::{self, BatchQuestion, Unanswered};
use crate::source::offsets::{self, EpochQuestion};

/// A partition whose log may be no beginning of the source's.
pub(super) struct Open {
    pub(super) asked: Asked,
    pub(super) source: SourceLog,
    /// What told so.
    pub(super) why: String,
}

/// One whose common point is searched for.
struct Searching {
    open: Open,
    compacted_there: bool,
    search: Search,
}

type Outcomes = BTreeMap<usize, Outcome>;

/// Finds where the logs diverge, and judges what stands behind; one outcome for each item, in their order.
pub(super) async fn search(site: &Site, cluster: &impl LocalCluster, items: &[Item]) -> Vec<Outcome> {
    let Looked { mut outcomes, open } = look(site, cluster, items).await;
    if let Some(endpoint) = &site.endpoint {
        find(site, endpoint, cluster, open, &mut outcomes).await;
    }
    in_order(outcomes, items)
}

async fn find(
    site: &Site,
    endpoint: &Endpoint,
    cluster: &impl LocalCluster,
    open: Vec<Open>,
    outcomes: &mut Outcomes,
) {
    let open = with_policies(site, endpoint, open, |open| &open.asked, outcomes).await;
    let mut searching: Vec<Searching> =
        open.into_iter().map(|(open, compacted_there)| begin(open, compacted_there)).collect();
    let mut found = Vec::new();
    while !searching.is_empty() {
        let mut asks = Asks::default();
        for one in searching.drain(..) {
            match one.search.next() {
                Ask::Found(point) => found.push((one, point)),
                Ask::BatchHere(below) => asks.batches_here.push((one, below)),
                Ask::EpochHere(epoch) => asks.epochs_here.push((one, epoch)),
                Ask::EpochThere(epoch) => asks.epochs_there.push((one, epoch)),
                Ask::BatchThere(batch) => asks.batches_there.push((one, batch)),
            }
        }
        let Asks { batches_here, epochs_here, epochs_there, batches_there } = asks;
        site.has_answers();
        searching.extend(ask_batches_here(cluster, batches_here, outcomes).await);
        searching.extend(ask_epochs_here(cluster, epochs_here, outcomes).await);
        site.asks();
        searching.extend(ask_epochs_there(site, endpoint, epochs_there, outcomes).await);
        searching.extend(ask_batches_there(site, endpoint, batches_there, outcomes).await);
    }
    site.has_answers();
    judge_all(site, cluster, found, outcomes).await;
}

/// What all searches have to know next.
#[derive(Default)]
struct Asks {
    batches_here: Vec<(Searching, Offset)>,
    epochs_here: Vec<(Searching, Epoch)>,
    epochs_there: Vec<(Searching, Epoch)>,
    batches_there: Vec<(Searching, BatchHeader)>,
}

fn begin(open: Open, compacted_there: bool) -> Searching {
    let ours = open.asked.question.ours;
    let mirrored_end = mirrored_end(&open.asked);
    let search = Search::new(Logs {
        log_start: ours.log_start,
        mirrored_end,
        source_start: open.source.log_start,
        source_epoch: open.asked.leader.epoch,
        proof: if ours.compacted || compacted_there { Proof::Epochs } else { Proof::Crcs },
    });
    Searching { open, compacted_there, search }
}

/// Up to where the mirror has filled a log: what was mirrored before a stop, as far as it is still here; all else is
/// anybody's.
fn mirrored_end(asked: &Asked) -> Offset {
    let log_end = asked.question.ours.log_end;
    match asked.content {
        Content::Mirrored => log_end,
        Content::Local => asked.last_position.map_or(Offset(0), |position| position.offset.min(log_end)),
    }
}

async fn ask_batches_here(
    cluster: &impl LocalCluster,
    asked: Vec<(Searching, Offset)>,
    outcomes: &mut Outcomes,
) -> Vec<Searching> {
    if asked.is_empty() {
        return Vec::new();
    }
    let places = asked.iter().map(|(one, below)| (one.partition(), *below)).collect();
    let answers = cluster.batches_below(places).await;
    told(asked, here(answers), outcomes, |search, batch| search.batch_here(batch))
}

async fn ask_epochs_here(
    cluster: &impl LocalCluster,
    asked: Vec<(Searching, Epoch)>,
    outcomes: &mut Outcomes,
) -> Vec<Searching> {
    if asked.is_empty() {
        return Vec::new();
    }
    let epochs = asked.iter().map(|(one, epoch)| (one.partition(), *epoch)).collect();
    let answers = cluster.epoch_ends(epochs).await;
    told(asked, here(answers), outcomes, |search, end: EpochEnd| search.epoch_here(end))
}

async fn ask_epochs_there(
    site: &Site,
    endpoint: &Endpoint,
    asked: Vec<(Searching, Epoch)>,
    outcomes: &mut Outcomes,
) -> Vec<Searching> {
    if asked.is_empty() {
        return Vec::new();
    }
    let question = |(one, epoch): &(Searching, Epoch)| EpochQuestion {
        topic: one.open.asked.question.topic.clone(),
        partition: one.open.asked.question.partition,
        leader_epoch: one.open.asked.leader.epoch,
        asked: *epoch,
    };
    let questions: Vec<EpochQuestion> = asked.iter().map(question).collect();
    let answers = match site.connections.to(endpoint).await {
        Ok(client) => offsets::epoch_ends(&client, &questions).await.map_err(SourceError::from),
        Err(error) => Err(error),
    };
    let answers = there(answers, asked.len());
    told(asked, answers, outcomes, |search, end: EpochEnd| search.epoch_there(end))
}

async fn ask_batches_there(
    site: &Site,
    endpoint: &Endpoint,
    asked: Vec<(Searching, BatchHeader)>,
    outcomes: &mut Outcomes,
) -> Vec<Searching> {
    if asked.is_empty() {
        return Vec::new();
    }
    let question = |(one, ours): &(Searching, BatchHeader)| BatchQuestion {
        topic: one.open.asked.question.topic.clone(),
        partition: one.open.asked.question.partition,
        leader_epoch: one.open.asked.leader.epoch,
        ours: *ours,
    };
    let questions: Vec<BatchQuestion> = asked.iter().map(question).collect();
    let answers = match batches::ask(&site.connections, endpoint, &questions, &batch_limits(site)).await {
        Ok(answers) => asked.iter().zip(answers).map(|(asked, answer)| in_its_place(asked, answer)).collect(),
        Err(error) => asked.iter().map(|_| Err(unreached(&error))).collect(),
    };
    told(asked, answers, outcomes, |search, theirs: BatchThere| search.batch_there(&theirs))
}

/// What the source has where a batch here is.
fn in_its_place(
    (one, ours): &(Searching, BatchHeader),
    answer: batches::BatchAnswer,
) -> Result<BatchThere, Outcome> {
    match answer {
        Ok(there) => Ok(there),
        Err(Unanswered::Refused(code)) => Err(refused_by_source(code)),
        Err(Unanswered::Empty) if one.is_compacted() => Ok(BatchThere::Nothing),
        Err(Unanswered::Empty) => Err(sends_nothing(ours)),
    }
}

/// Tells searches their answers. Those that go on are returned; the others have come to an outcome.
fn told<Q, T>(
    asked: Vec<(Searching, Q)>,
    answers: Vec<Result<T, Outcome>>,
    outcomes: &mut Outcomes,
    tell: impl Fn(&mut Search, T),
) -> Vec<Searching> {
    let mut going_on = Vec::new();
    for ((mut one, _), answer) in asked.into_iter().zip(answers) {
        match answer {
            Ok(answer) => {
                tell(&mut one.search, answer);
                going_on.push(one);
            }
            Err(outcome) => {
                outcomes.insert(one.open.asked.index, outcome);
            }
        }
    }
    going_on
}

fn here<T>(answers: Vec<Result<T, LocalError>>) -> Vec<Result<T, Outcome>> {
    answers.into_iter().map(|answer| answer.map_err(|error| Outcome::refused_here(&error))).collect()
}

fn there<T>(
    answers: Result<Vec<Result<T, ErrorCode>>, SourceError>,
    count: usize,
) -> Vec<Result<T, Outcome>> {
    match answers {
        Ok(answers) => answers.into_iter().map(|answer| answer.map_err(refused_by_source)).collect(),
        Err(error) => (0..count).map(|_| Err(unreached(&error))).collect(),
    }
}

/// Counts what stands behind the common points, and says what the searches have come to.
async fn judge_all(
    site: &Site,
    cluster: &impl LocalCluster,
    found: Vec<(Searching, Option<CommonPoint>)>,
    outcomes: &mut Outcomes,
) {
    if found.is_empty() {
        return;
    }
    let image = cluster.image();
    let order = |(one, point): &(Searching, Option<CommonPoint>)| {
        let configs = image.configs().topic(&one.open.asked.question.topic);
        let given_up = site.config.divergence_records_max(configs).unwrap_or(0);
        CountOrder {
            partition: one.partition(),
            from: point.map_or(one.open.asked.question.ours.log_start, |point| point.offset),
            records_max: limits::COUNTED_RECORDS_MAX.max(given_up),
        }
    };
    let suffixes = cluster.suffixes(found.iter().map(order).collect()).await;
    for ((one, common), suffix) in found.into_iter().zip(suffixes) {
        let Searching { open: Open { asked, source, mut why }, compacted_there, search } = one;
        if search.gave_up() {
            let answers = limits::SEARCH_ANSWERS_MAX;
            why.push_str(&format!(
                "; where both part was not found in {answers} answers, so nothing counts as common"
            ));
        }
        let outcome = match suffix {
            Ok(suffix) => {
                let rest = Rest { why, suffix, mirrored_end: mirrored_end(&asked), compacted_there };
                let alignment = judge(&asked.question.ours, asked.content, &source, common, rest);
                Outcome::Compared(asked.leader, Box::new(alignment))
            }
            Err(error) => Outcome::refused_here(&error),
        };
        outcomes.insert(asked.index, outcome);
    }
}

impl Searching {
    /// Whether a cleaner may have removed something of either log.
    fn is_compacted(&self) -> bool {
        self.compacted_there || self.open.asked.question.ours.compacted
    }

    fn partition(&self) -> TopicIdPartition {
        self.open.asked.partition
    }
}
