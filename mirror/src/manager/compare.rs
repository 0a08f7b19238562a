//! Comparing the histories of partitions with one source broker, many at once: epochs and ends for all of
//! them, and the newest batch of those whose epochs and ends agree. Where that does not prove that the log here is a
//! beginning of the source's, `search` goes on: in work of its own, which those that agree do not wait for.

use std::collections::BTreeMap;
use std::time::Duration;

use tarn_record::{BatchHeader, TopicIdPartition};
use tarn_transport::Endpoint;
use tarn_wire::ErrorCode;

use super::job::{Item, Outcome, Site, Work};
use super::policies::with_policies;
use super::positions;
use super::search::Open;
use crate::alignment::{
    Apart, BatchThere, Content, GoOn, SameBatch, SourceLog, align, compare_batch, has_batch_to_compare,
};
use crate::divergence::Alignment;
use crate::local_cluster::{LastPosition, LocalCluster};
use crate::partition::Want;
use crate::reasons::Reason;
use crate::source::SourceError;
use crate::source::batches::{self, BatchAnswer, BatchLimits, BatchQuestion, Unanswered};
use crate::source::metadata::SourceLeader;
use crate::source::offsets::{self, Question};

/// A partition whose log here is known.
pub(super) struct Asked {
    pub(super) index: usize,
    pub(super) partition: TopicIdPartition,
    pub(super) leader: SourceLeader,
    pub(super) content: Content,
    /// Up to where the mirror had filled the log when it was last stopped.
    pub(super) last_position: Option<LastPosition>,
    pub(super) question: Question,
}

/// A partition that agrees with the source but for its newest batch, which is open.
struct Agrees {
    asked: Asked,
    source: SourceLog,
    go_on: GoOn,
    ours: BatchHeader,
}

/// Compares; one outcome for each item, in their order.
pub(super) async fn compare(site: &Site, cluster: &impl LocalCluster, items: &[Item]) -> Vec<Outcome> {
    let Looked { mut outcomes, open } = look(site, cluster, items).await;
    let apart = |open: Open| (open.asked.index, Outcome::Apart(open.asked.leader, open.why));
    outcomes.extend(open.into_iter().map(apart));
    in_order(outcomes, items)
}

/// What comparing came to: outcomes by the items' places, and those that are open.
pub(super) struct Looked {
    pub(super) outcomes: BTreeMap<usize, Outcome>,
    pub(super) open: Vec<Open>,
}

/// Compares as far as that takes a few questions.
pub(super) async fn look(site: &Site, cluster: &impl LocalCluster, items: &[Item]) -> Looked {
    let (mut outcomes, mut open) = (BTreeMap::new(), Vec::new());
    let mut asked = here(cluster, items, &mut outcomes).await;
    positions::distrust(site, cluster, &mut asked, &mut outcomes).await;
    match &site.endpoint {
        Some(endpoint) => {
            let agrees = compare_epochs(site, endpoint, cluster, asked, &mut open, &mut outcomes).await;
            compare_batches(site, endpoint, cluster, agrees, &mut open, &mut outcomes).await;
        }
        None => {
            let lost = |asked: Asked| (asked.index, Outcome::SourceLost(ErrorCode::BROKER_NOT_AVAILABLE));
            outcomes.extend(asked.into_iter().map(lost));
        }
    }
    Looked { outcomes, open }
}

/// One outcome for each item.
pub(super) fn in_order(mut outcomes: BTreeMap<usize, Outcome>, items: &[Item]) -> Vec<Outcome> {
    let missing = || Outcome::Failed(Reason::DestinationNoLeader, "the log's end is not known".to_owned());
    (0..items.len()).map(|index| outcomes.remove(&index).unwrap_or_else(missing)).collect()
}

/// Where the logs here begin and end.
async fn here(
    cluster: &impl LocalCluster,
    items: &[Item],
    outcomes: &mut BTreeMap<usize, Outcome>,
) -> Vec<Asked> {
    let ends = cluster.ends(items.iter().map(|item| item.partition).collect()).await;
    let mut asked = Vec::new();
    for (index, (item, ours)) in items.iter().zip(ends).enumerate() {
        let (Want::Compare(leader) | Want::Search(leader)) = item.want else { continue };
        match ours {
            Ok(ours) => {
                let question = Question {
                    topic: item.topic.clone(),
                    partition: item.partition.partition,
                    leader_epoch: leader.epoch,
                    ours,
                };
                let Item { partition, content, last_position, .. } = *item;
                asked.push(Asked { index, partition, leader, content, last_position, question });
            }
            Err(error) => {
                outcomes.insert(index, Outcome::refused_here(&error));
            }
        }
    }
    asked
}

/// Compares epochs and ends. Those that agree are returned, as far as a batch can be compared; what is open is noted.
async fn compare_epochs(
    site: &Site,
    endpoint: &Endpoint,
    cluster: &impl LocalCluster,
    asked: Vec<Asked>,
    open: &mut Vec<Open>,
    outcomes: &mut BTreeMap<usize, Outcome>,
) -> Vec<Agrees> {
    let questions: Vec<Question> = asked.iter().map(|asked| asked.question.clone()).collect();
    let answers = match site.connections.to(endpoint).await {
        Ok(client) => offsets::ask(&client, &questions).await.map_err(SourceError::from),
        Err(error) => Err(error),
    };
    let answers = match answers {
        Ok(answers) => answers,
        Err(error) => {
            outcomes.extend(asked.into_iter().map(|asked| (asked.index, unreached(&error))));
            return Vec::new();
        }
    };
    let mut agree = Vec::new();
    for (asked, answer) in asked.into_iter().zip(answers) {
        let source = match answer {
            Ok(source) => source,
            Err(code) => {
                outcomes.insert(asked.index, refused_by_source(code));
                continue;
            }
        };
        let ours = asked.question.ours;
        match align(&ours, asked.content, &source) {
            Ok(go_on) if has_batch_to_compare(&ours, &source) => agree.push((asked, source, go_on)),
            Ok(go_on) => {
                outcomes
                    .insert(asked.index, Outcome::Compared(asked.leader, Box::new(Alignment::GoOn(go_on))));
            }
            Err(Apart(why)) => open.push(Open { asked, source, why }),
        }
    }
    with_newest_batches(cluster, agree, outcomes).await
}

/// Looks for the newest batches here.
async fn with_newest_batches(
    cluster: &impl LocalCluster,
    agree: Vec<(Asked, SourceLog, GoOn)>,
    outcomes: &mut BTreeMap<usize, Outcome>,
) -> Vec<Agrees> {
    if agree.is_empty() {
        return Vec::new();
    }
    let newest = cluster.newest_batches(agree.iter().map(|(asked, ..)| asked.partition).collect()).await;
    let mut found = Vec::new();
    for ((asked, source, go_on), newest) in agree.into_iter().zip(newest) {
        match newest {
            Ok(Some(ours)) => found.push(Agrees { asked, source, go_on, ours }),
            Ok(None) => {
                outcomes
                    .insert(asked.index, Outcome::Compared(asked.leader, Box::new(Alignment::GoOn(go_on))));
            }
            Err(error) => {
                outcomes.insert(asked.index, Outcome::refused_here(&error));
            }
        }
    }
    found
}

/// Fetches the newest batches again and compares them.
async fn compare_batches(
    site: &Site,
    endpoint: &Endpoint,
    cluster: &impl LocalCluster,
    agrees: Vec<Agrees>,
    open: &mut Vec<Open>,
    outcomes: &mut BTreeMap<usize, Outcome>,
) {
    if agrees.is_empty() {
        return;
    }
    let question = |agrees: &Agrees| BatchQuestion {
        topic: agrees.asked.question.topic.clone(),
        partition: agrees.asked.question.partition,
        leader_epoch: agrees.asked.leader.epoch,
        ours: agrees.ours,
    };
    let questions: Vec<BatchQuestion> = agrees.iter().map(question).collect();
    let answers = match batches::ask(&site.connections, endpoint, &questions, &batch_limits(site)).await {
        Ok(answers) => answers,
        Err(error) => {
            outcomes.extend(agrees.into_iter().map(|agrees| (agrees.asked.index, unreached(&error))));
            return;
        }
    };
    let mut doubtful = Vec::new();
    for (agrees, answer) in agrees.into_iter().zip(answers) {
        match in_its_place(&agrees.ours, answer) {
            Ok(None) => goes_on(&agrees, outcomes),
            Ok(Some(other)) => doubtful.push((agrees, other)),
            Err(code) => {
                outcomes.insert(agrees.asked.index, refused_by_source(code));
            }
        }
    }
    let mut other = Vec::new();
    for (agrees, there) in with_ours_intact(cluster, doubtful, outcomes).await {
        match there {
            InItsPlace::Cleaned => goes_on(&agrees, outcomes),
            InItsPlace::Replaced(why) => {
                let Agrees { asked, source, .. } = agrees;
                open.push(Open { asked, source, why });
            }
            InItsPlace::Another(why) => other.push((agrees, Some(why))),
            InItsPlace::Nothing => other.push((agrees, None)),
        }
    }
    look_at_others(site, endpoint, other, open, outcomes).await;
}

fn goes_on(agrees: &Agrees, outcomes: &mut BTreeMap<usize, Outcome>) {
    let Agrees { asked, go_on, .. } = agrees;
    outcomes.insert(asked.index, Outcome::Compared(asked.leader, Box::new(Alignment::GoOn(*go_on))));
}

/// What the source sends where the newest batch here is, and is not the same.
enum InItsPlace {
    /// The same, as far as a cleaner has left it.
    Cleaned,
    /// Another batch of another history, and which.
    Replaced(String),
    /// Another batch, and which.
    Another(String),
    /// Nothing.
    Nothing,
}

/// What the source has there; `None` where it is the same batch.
fn in_its_place(ours: &BatchHeader, answer: BatchAnswer) -> Result<Option<InItsPlace>, ErrorCode> {
    match answer.map(|theirs: BatchThere| compare_batch(ours, &theirs)) {
        Ok(SameBatch::Same) => Ok(None),
        Ok(SameBatch::Cleaned) => Ok(Some(InItsPlace::Cleaned)),
        Ok(SameBatch::Replaced(why)) => Ok(Some(InItsPlace::Replaced(why))),
        Ok(SameBatch::Another(why)) => Ok(Some(InItsPlace::Another(why))),
        Err(Unanswered::Empty) => Ok(Some(InItsPlace::Nothing)),
        Err(Unanswered::Refused(code)) => Err(code),
    }
}

/// Those of which the newest batch here is what was written. A source is not to blame for what this node's disk has
/// made of one.
async fn with_ours_intact(
    cluster: &impl LocalCluster,
    doubtful: Vec<(Agrees, InItsPlace)>,
    outcomes: &mut BTreeMap<usize, Outcome>,
) -> Vec<(Agrees, InItsPlace)> {
    if doubtful.is_empty() {
        return doubtful;
    }
    let end = |agrees: &Agrees| (agrees.asked.partition, agrees.asked.question.ours.log_end);
    let newest = cluster.batches_below(doubtful.iter().map(|(agrees, _)| end(agrees)).collect()).await;
    let mut intact = Vec::new();
    for ((agrees, there), newest) in doubtful.into_iter().zip(newest) {
        match newest {
            Ok(Some(ours)) if ours == agrees.ours => intact.push((agrees, there)),
            Ok(_) => {
                let why = "the log here is not what it was when it was compared; it is compared again";
                outcomes
                    .insert(agrees.asked.index, Outcome::Failed(Reason::ComparingHistories, why.to_owned()));
            }
            Err(error) => {
                outcomes.insert(agrees.asked.index, Outcome::refused_here(&error));
            }
        }
    }
    intact
}

/// Another batch is another history, unless a cleaner may have removed ours; and nothing is none, unless it may.
async fn look_at_others(
    site: &Site,
    endpoint: &Endpoint,
    other: Vec<(Agrees, Option<String>)>,
    open: &mut Vec<Open>,
    outcomes: &mut BTreeMap<usize, Outcome>,
) {
    let other = with_policies(site, endpoint, other, |(agrees, _)| &agrees.asked, outcomes).await;
    for ((Agrees { asked, source, go_on, ours }, there), compacted_there) in other {
        let is_compacted = compacted_there || asked.question.ours.compacted;
        let outcome = match (is_compacted, there) {
            (true, _) => Outcome::Compared(asked.leader, Box::new(Alignment::GoOn(go_on))),
            (false, Some(why)) => {
                open.push(Open { asked, source, why });
                continue;
            }
            // That is waited for in work of its own.
            (false, None) if matches!(site.work, Work::Compare(_)) => {
                open.push(Open { asked, source, why: not_sent(&ours) });
                continue;
            }
            (false, None) => sends_nothing(&ours),
        };
        outcomes.insert(asked.index, outcome);
    }
}

/// The source sends nothing where this batch is, of which no cleaner can have removed anything: it is asked again.
pub(super) fn sends_nothing(ours: &BatchHeader) -> Outcome {
    Outcome::Failed(Reason::ComparingHistories, format!("{}; it is asked again", not_sent(ours)))
}

fn not_sent(ours: &BatchHeader) -> String {
    let offset = ours.last_offset();
    format!("the source sends nothing at offset {offset}, which is below its high watermark")
}

/// How much may be fetched to compare batches.
pub(super) fn batch_limits(site: &Site) -> BatchLimits<'_> {
    let wait = match site.work {
        Work::Search(_) => site.config.fetch_wait_max,
        _ => Duration::ZERO,
    };
    BatchLimits { config: &site.config, wait, batch_max_bytes: site.batch_max_bytes, budget: &site.budget }
}

pub(super) fn unreached(error: &SourceError) -> Outcome {
    Outcome::Failed(error.reason(), error.to_string())
}

pub(super) fn refused_by_source(code: ErrorCode) -> Outcome {
    if is_about_leaders(code) {
        return Outcome::SourceLost(code);
    }
    let message = format!("the source answers {}: {}", code.name(), code.message());
    Outcome::Failed(Reason::of_refusal(code), message)
}

/// Errors that are over once the right leader is known, or knows its own log.
fn is_about_leaders(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::LEADER_NOT_AVAILABLE
            | ErrorCode::FENCED_LEADER_EPOCH
            | ErrorCode::UNKNOWN_LEADER_EPOCH
            | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode::OFFSET_NOT_AVAILABLE
            | ErrorCode::KAFKA_STORAGE_ERROR
            | ErrorCode::BROKER_NOT_AVAILABLE
    )
}
