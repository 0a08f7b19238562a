//! Comparing the histories of partitions with one source broker, many at once: epochs and ends for all of
//! them, and the newest batch of those whose epochs and ends agree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tarn_record::{BatchHeader, TopicIdPartition};
use tarn_transport::Endpoint;
use tarn_wire::ErrorCode;

use super::job::{Item, Outcome, Site};
use crate::alignment::{
    Alignment, BatchThere, Content, SameBatch, align, compare_batch, has_batch_to_compare,
};
use crate::local_cluster::LocalCluster;
use crate::partition::Want;
use crate::reasons::Reason;
use crate::source::batches::{self, BatchLimits, BatchQuestion};
use crate::source::metadata::SourceLeader;
use crate::source::offsets::{self, Question};
use crate::source::{SourceError, configs};

/// A partition whose log here is known.
struct Asked {
    index: usize,
    partition: TopicIdPartition,
    leader: SourceLeader,
    content: Content,
    question: Question,
}

/// A partition that agrees with the source but for its newest batch, which is open.
struct Open {
    asked: Asked,
    alignment: Alignment,
    ours: BatchHeader,
}

/// Compares; one outcome for each item, in their order.
pub(super) async fn compare(site: &Site, cluster: &impl LocalCluster, items: &[Item]) -> Vec<Outcome> {
    let mut outcomes: BTreeMap<usize, Outcome> = BTreeMap::new();
    let asked = here(cluster, items, &mut outcomes).await;
    match &site.endpoint {
        Some(endpoint) => {
            let open = compare_epochs(site, endpoint, cluster, asked, &mut outcomes).await;
            compare_batches(site, endpoint, open, &mut outcomes).await;
        }
        None => {
            let lost = |asked: Asked| (asked.index, Outcome::SourceLost(ErrorCode::BROKER_NOT_AVAILABLE));
            outcomes.extend(asked.into_iter().map(lost));
        }
    }
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
        let Want::Compare(leader) = item.want else { continue };
        match ours {
            Ok(ours) => {
                let question = Question {
                    topic: item.topic.clone(),
                    partition: item.partition.partition,
                    leader_epoch: leader.epoch,
                    ours,
                };
                let (partition, content) = (item.partition, item.content);
                asked.push(Asked { index, partition, leader, content, question });
            }
            Err(error) => {
                outcomes.insert(index, Outcome::refused_here(&error));
            }
        }
    }
    asked
}

/// Compares epochs and ends. What that leaves open is returned.
async fn compare_epochs(
    site: &Site,
    endpoint: &Endpoint,
    cluster: &impl LocalCluster,
    asked: Vec<Asked>,
    outcomes: &mut BTreeMap<usize, Outcome>,
) -> Vec<Open> {
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
    let mut open = Vec::new();
    for (asked, answer) in asked.into_iter().zip(answers) {
        let source = match answer {
            Ok(source) => source,
            Err(code) => {
                outcomes.insert(asked.index, refused_by_source(code));
                continue;
            }
        };
        let (ours, alignment) = (asked.question.ours, align(&asked.question.ours, asked.content, &source));
        let goes_on = matches!(alignment, Alignment::GoOn { .. });
        if goes_on && has_batch_to_compare(&ours, &source) {
            open.push((asked, alignment));
        } else {
            outcomes.insert(asked.index, Outcome::Compared(asked.leader, alignment));
        }
    }
    with_newest_batches(cluster, open, outcomes).await
}

/// Looks for the newest batches here.
async fn with_newest_batches(
    cluster: &impl LocalCluster,
    open: Vec<(Asked, Alignment)>,
    outcomes: &mut BTreeMap<usize, Outcome>,
) -> Vec<Open> {
    if open.is_empty() {
        return Vec::new();
    }
    let newest = cluster.newest_batches(open.iter().map(|(asked, _)| asked.partition).collect()).await;
    let mut found = Vec::new();
    for ((asked, alignment), newest) in open.into_iter().zip(newest) {
        match newest {
            Ok(Some(ours)) => found.push(Open { asked, alignment, ours }),
            Ok(None) => {
                outcomes.insert(asked.index, Outcome::Compared(asked.leader, alignment));
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
    open: Vec<Open>,
    outcomes: &mut BTreeMap<usize, Outcome>,
) {
    if open.is_empty() {
        return;
    }
    let question = |open: &Open| BatchQuestion {
        topic: open.asked.question.topic.clone(),
        partition: open.asked.question.partition,
        leader_epoch: open.asked.leader.epoch,
        ours: open.ours,
    };
    let questions: Vec<BatchQuestion> = open.iter().map(question).collect();
    let limits =
        BatchLimits { config: &site.config, batch_max_bytes: site.batch_max_bytes, budget: &site.budget };
    let answers = match batches::ask(&site.connections, endpoint, &questions, &limits).await {
        Ok(answers) => answers,
        Err(error) => {
            outcomes.extend(open.into_iter().map(|open| (open.asked.index, unreached(&error))));
            return;
        }
    };
    let mut other: Vec<(Asked, Alignment, String)> = Vec::new();
    for (Open { asked, alignment, ours }, answer) in open.into_iter().zip(answers) {
        let same = answer.map(|theirs: BatchThere| compare_batch(&ours, &theirs));
        match same {
            Ok(SameBatch::Another(why)) => other.push((asked, alignment, why)),
            Ok(SameBatch::Same | SameBatch::Cleaned) => {
                outcomes.insert(asked.index, Outcome::Compared(asked.leader, alignment));
            }
            Err(code) => {
                outcomes.insert(asked.index, refused_by_source(code));
            }
        }
    }
    judge(site, endpoint, other, outcomes).await;
}

/// Another batch is another history, unless a cleaner may have removed ours.
async fn judge(
    site: &Site,
    endpoint: &Endpoint,
    other: Vec<(Asked, Alignment, String)>,
    outcomes: &mut BTreeMap<usize, Outcome>,
) {
    let topics: BTreeSet<Arc<str>> = other.iter().map(|(asked, ..)| asked.question.topic.clone()).collect();
    if topics.is_empty() {
        return;
    }
    let topics: Vec<&str> = topics.iter().map(|topic| &**topic).collect();
    let compacted = match site.connections.to(endpoint).await {
        Ok(client) => configs::compacted(&client, &topics).await,
        Err(error) => Err(error),
    };
    for (asked, alignment, why) in other {
        let outcome = match &compacted {
            Ok(compacted) => {
                let there = compacted.get(&*asked.question.topic).copied();
                match there {
                    Some(there) if there || asked.question.ours.compacted => {
                        Outcome::Compared(asked.leader, alignment)
                    }
                    Some(_) => Outcome::Compared(asked.leader, Alignment::Diverged(why)),
                    None => Outcome::SourceLost(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
                }
            }
            Err(error) => unreached(error),
        };
        outcomes.insert(asked.index, outcome);
    }
}

fn unreached(error: &SourceError) -> Outcome {
    Outcome::Failed(error.reason(), error.to_string())
}

fn refused_by_source(code: ErrorCode) -> Outcome {
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
