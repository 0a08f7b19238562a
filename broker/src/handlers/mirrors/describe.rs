//! DescribeClusterMirrors: states from the coordinators, offsets and lag from the leaders, page by page.

use std::collections::BTreeMap;
use std::rc::Rc;

use tarn_image::MirrorImage;
use tarn_mirror::coordinator::PartitionState;
use tarn_mirror::local_cluster::LogEnds;
use tarn_mirror::manager::Standing;
use tarn_record::{PartitionIndex, TopicIdPartition};
use tarn_wire::messages::describe_cluster_mirrors_response::{
    DescribedMirror, DescribedMirrorPartition, DescribedMirrorTopic, MirrorCursor, MirrorStateCount,
    MirrorTask,
};
use tarn_wire::messages::{DescribeClusterMirrorsRequest, DescribeClusterMirrorsResponse};
use tarn_wire::{ErrorCode, Str};

use super::states::{ends, states};
use crate::core::Core;

/// Partitions in one answer at most.
const PARTITIONS_PER_ANSWER: usize = 2000;
/// What is shown of a partition that has no state yet.
const NO_STATE: &str = "UNKNOWN";

/// Serves DescribeClusterMirrors.
pub async fn describe(
    core: &Rc<Core>,
    request: DescribeClusterMirrorsRequest,
) -> DescribeClusterMirrorsResponse {
    let limit =
        usize::try_from(request.response_partition_limit).unwrap_or(0).clamp(1, PARTITIONS_PER_ANSWER);
    let mut page = Page { left: limit, cursor: request.cursor.as_ref().map(place_of), next: None };
    let mut response = DescribeClusterMirrorsResponse::default();
    for name in names(core, &request) {
        if page.next.is_some() {
            break;
        }
        if page.cursor.as_ref().is_some_and(|(mirror, _, _)| *name < **mirror) {
            continue;
        }
        let described = describe_one(core, &request, &name, &mut page).await;
        response.mirrors.push(described);
    }
    response.next_cursor = page.next;
    response
}

/// A place in the order of an answer: mirror, topic, partition.
type Place = (String, String, i32);

struct Page {
    left: usize,
    cursor: Option<Place>,
    next: Option<tarn_wire::messages::describe_cluster_mirrors_response::MirrorCursor>,
}

fn place_of(cursor: &tarn_wire::messages::describe_cluster_mirrors_request::MirrorCursor) -> Place {
    (cursor.mirror_name.to_string(), cursor.topic_name.to_string(), cursor.partition_index)
}

/// The mirrors asked for, in the order of their names.
fn names(core: &Rc<Core>, request: &DescribeClusterMirrorsRequest) -> Vec<String> {
    let mut names: Vec<String> = match &request.mirror_names {
        Some(names) => names.iter().map(|name| name.to_string()).collect(),
        None => {
            let view = core.view();
            let mirrors = view.image().mirrors();
            mirrors
                .filter(|mirror| {
                    let asked = request.cluster_id.as_deref();
                    asked.is_none() || mirror.source_cluster_id() == asked
                })
                .map(|mirror| mirror.name.to_owned())
                .collect()
        }
    };
    names.sort_unstable();
    names.dedup();
    names
}

async fn describe_one(
    core: &Rc<Core>,
    request: &DescribeClusterMirrorsRequest,
    name: &str,
    page: &mut Page,
) -> DescribedMirror {
    let view = core.view();
    let Some(mirror) = view.image().mirror(name) else {
        return DescribedMirror {
            error_code: ErrorCode::UNKNOWN_CLUSTER_MIRROR.0,
            error_message: Some(format!("there is no mirror {name}").into()),
            mirror_name: name.into(),
            ..Default::default()
        };
    };
    let mut described = header_of(core, &mirror);
    let mut counts: BTreeMap<Str, i32> = BTreeMap::new();
    for (topic, partitions) in partitions_of(core, request, name) {
        let desired = view.binding(&topic).map(|binding| binding.desired.to_string());
        let Some(topic_id) = view.topic_by_name(&topic).map(|found| found.id) else { continue };
        let rows = rows(core, name, &partitions).await;
        rows.iter().for_each(|row| *counts.entry(row.state_value.clone()).or_default() += 1);
        if request.counts_only || page.next.is_some() {
            continue;
        }
        let mut shown = Vec::new();
        for row in rows {
            let place = (name.to_owned(), topic.clone(), row.partition_index);
            if page.cursor.as_ref().is_some_and(|cursor| place < *cursor) {
                continue;
            }
            if page.left == 0 {
                page.next = Some(MirrorCursor {
                    mirror_name: name.into(),
                    topic_name: topic.as_str().into(),
                    partition_index: row.partition_index,
                });
                break;
            }
            page.left -= 1;
            shown.push(row);
        }
        if !shown.is_empty() {
            described.topics.push(DescribedMirrorTopic {
                topic_name: topic.as_str().into(),
                topic_id: topic_id.0,
                desired_state: desired.map(Str::from),
                partitions: shown,
            });
        }
    }
    described.state_counts = counts
        .into_iter()
        .map(|(state_value, partitions)| MirrorStateCount { state_value, partitions })
        .collect();
    described
}

fn header_of(core: &Rc<Core>, mirror: &MirrorImage<'_>) -> DescribedMirror {
    let tasks = core.node().mirrors().map(|manager| manager.tasks(mirror.name)).unwrap_or_default();
    DescribedMirror {
        mirror_name: mirror.name.into(),
        source_bootstrap: Some(mirror.bootstrap_servers().into()),
        source_cluster_id: mirror.source_cluster_id().map(Str::from),
        tasks: tasks
            .into_iter()
            .map(|task| MirrorTask {
                name: task.name.into(),
                state: task.state.into(),
                reason_code: task.reason.map(|reason| reason.code().into()),
                error_message: task.message.map(Str::from),
                last_success_age_ms: age(task.last_success_age_ms),
                broker_id: core.node().broker_id().0,
            })
            .collect(),
        ..Default::default()
    }
}

/// The partitions asked for of a mirror, topic by topic in the order of their names.
fn partitions_of(
    core: &Rc<Core>,
    request: &DescribeClusterMirrorsRequest,
    mirror: &str,
) -> Vec<(String, Vec<TopicIdPartition>)> {
    let view = core.view();
    let mut found = Vec::new();
    for topic in view.image().bindings().topics_of(mirror) {
        let asked = match &request.topics {
            None => None,
            Some(topics) => match topics.iter().find(|asked| *asked.topic_name == **topic) {
                Some(asked) => asked.partitions.as_ref(),
                None => continue,
            },
        };
        let Some(image) = view.topic_by_name(topic) else { continue };
        let wanted = |index: &&PartitionIndex| asked.is_none_or(|asked| asked.contains(&index.0));
        let partitions = image.partitions.keys().filter(wanted);
        let partitions = partitions.map(|index| TopicIdPartition { topic_id: image.id, partition: *index });
        found.push((topic.to_string(), partitions.collect()));
    }
    found
}

async fn rows(
    core: &Rc<Core>,
    mirror: &str,
    partitions: &[TopicIdPartition],
) -> Vec<DescribedMirrorPartition> {
    let known = states(core, mirror, partitions.to_vec()).await;
    let ends = ends(core, partitions).await;
    let standings = core.node().mirrors().map(|manager| manager.offsets(mirror, partitions));
    let mut standings = standings.unwrap_or_default().into_iter();
    partitions
        .iter()
        .map(|partition| {
            let state = known.get(partition).and_then(|known| known.as_ref().ok()).and_then(Option::as_ref);
            row(*partition, state, standings.next().flatten(), ends.get(partition))
        })
        .collect()
}

/// One line: what is live on the leader wins over what was last written down.
fn row(
    partition: TopicIdPartition,
    known: Option<&PartitionState>,
    standing: Option<Standing>,
    ends: Option<&LogEnds>,
) -> DescribedMirrorPartition {
    let position = known.and_then(|known| known.position);
    let mut row = DescribedMirrorPartition {
        partition_index: partition.partition.0,
        state_value: known.and_then(|known| known.state).map_or(NO_STATE, |state| state.name()).into(),
        error_message: known.and_then(|known| known.error_message.clone()),
        retry_attempt: known.map_or(0, |known| known.retry_attempt),
        destination_offset: ends.map_or(-1, |ends| ends.high_watermark.0),
        last_mirror_epoch: position.map_or(-1, |position| position.epoch.0),
        last_mirror_offset: position.map_or(-1, |position| position.offset.0),
        reason_code: known.and_then(|known| known.reason_code.clone()),
        ..Default::default()
    };
    if let Some(standing) = standing {
        row.state_value = standing.state.name().into();
        row.error_message = standing.message.map(Str::from);
        row.retry_attempt = standing.retry_attempt;
        row.reason_code = standing.reason.map(|reason| reason.code().into());
        row.source_offset = standing.source_high_watermark.map_or(-1, |at| at.0);
        row.lag_ms = age(standing.lag_ms);
        row.last_fetch_age_ms = age(standing.last_fetch_age_ms);
    }
    row
}

fn age(age_ms: Option<u64>) -> i64 {
    age_ms.and_then(|age_ms| i64::try_from(age_ms).ok()).unwrap_or(-1)
}
