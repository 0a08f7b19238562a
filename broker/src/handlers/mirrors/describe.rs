//! DescribeClusterMirrors: states from the coordinators, offsets and lag from the leaders, page by page.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use tarn_image::{MetadataImage, MirrorImage};
use tarn_mirror::coordinator::PartitionState;
use tarn_mirror::local_cluster::LogEnds;
use tarn_mirror::manager::Standing;
use tarn_mirror::reasons::Reason;
use tarn_mirror::state::MirrorState;
use tarn_record::{TopicId, TopicIdPartition};
use tarn_wire::messages::describe_cluster_mirrors_request::DescribeMirrorTopic;
use tarn_wire::messages::describe_cluster_mirrors_response::{
    DescribedMirror, DescribedMirrorPartition, DescribedMirrorTopic, MirrorCursor, MirrorStateCount,
    MirrorTask,
};
use tarn_wire::messages::{DescribeClusterMirrorsRequest, DescribeClusterMirrorsResponse};
use tarn_wire::{ErrorCode, Str};

use super::states::ends;
use crate::coordinators::mirror_states::{self, Known};
use crate::core::Core;

/// Partitions in one answer at most.
const PARTITIONS_PER_ANSWER: usize = 2000;
/// What is shown of a partition of which no state is known.
const NO_STATE: &str = "UNKNOWN";
/// What is said of a partition that was mirrored once and of which nobody says that it is.
const NOBODY_MIRRORS: &str = "it was mirrored; no broker says that it leads and fetches it now";

/// Serves DescribeClusterMirrors.
pub async fn describe(
    core: &Rc<Core>,
    request: DescribeClusterMirrorsRequest,
) -> DescribeClusterMirrorsResponse {
    let limit =
        usize::try_from(request.response_partition_limit).unwrap_or(0).clamp(1, PARTITIONS_PER_ANSWER);
    let mut page = Page { left: limit, cursor: request.cursor.as_ref().map(place_of), next: None };
    let asked = request.topics.as_deref().map(Asked::of);
    let mut response = DescribeClusterMirrorsResponse::default();
    for name in names(core, &request) {
        if page.next.is_some() {
            break;
        }
        if page.cursor.as_ref().is_some_and(|(mirror, _, _)| *name < **mirror) {
            continue;
        }
        let described = describe_one(core, request.counts_only, asked.as_ref(), &name, &mut page).await;
        response.mirrors.push(described);
    }
    response.next_cursor = page.next;
    response
}

/// A place in the order of an answer: mirror, topic, partition.
type Place = (String, String, i32);

/// How much an answer can still take, where it begins, and where the next one does.
struct Page {
    left: usize,
    cursor: Option<Place>,
    next: Option<MirrorCursor>,
}

/// The partitions of a topic, by whether they are in this answer.
#[derive(Debug, PartialEq)]
struct Split {
    shown: Vec<TopicIdPartition>,
    others: Vec<TopicIdPartition>,
}

/// A topic of a mirror with the partitions that are asked for.
struct AskedTopic {
    name: String,
    id: TopicId,
    partitions: Vec<TopicIdPartition>,
}

/// The topics that a request names, with their partitions where it names some.
struct Asked<'a>(HashMap<&'a str, Option<HashSet<i32>>>);

impl Split {
    fn unshown(others: Vec<TopicIdPartition>) -> Split {
        Split { shown: Vec::new(), others }
    }
}

impl Page {
    /// True where an answer before this one began with the mirror.
    fn goes_on_with(&self, mirror: &str) -> bool {
        self.cursor.as_ref().is_some_and(|(begun, _, _)| begun == mirror)
    }

    /// Takes what there is room for of a topic; topics come in the order of their names.
    fn take(&mut self, mirror: &str, topic: &AskedTopic) -> Split {
        let first = match &self.cursor {
            Some((begun, name, _)) if begun == mirror && topic.name < *name => i32::MAX,
            Some((begun, name, partition)) if begun == mirror && topic.name == *name => *partition,
            _ => 0,
        };
        let mut split = Split { shown: Vec::new(), others: Vec::new() };
        for &partition in &topic.partitions {
            if partition.partition.0 < first || self.next.is_some() {
                split.others.push(partition);
            } else if self.left > 0 {
                self.left -= 1;
                split.shown.push(partition);
            } else {
                split.others.push(partition);
                self.next = Some(MirrorCursor {
                    mirror_name: mirror.into(),
                    topic_name: topic.name.as_str().into(),
                    partition_index: partition.partition.0,
                });
            }
        }
        split
    }
}

impl<'a> Asked<'a> {
    fn of(topics: &'a [DescribeMirrorTopic]) -> Asked<'a> {
        let partitions =
            |topic: &DescribeMirrorTopic| topic.partitions.as_ref().map(|all| all.iter().copied().collect());
        Asked(topics.iter().map(|topic| (&*topic.topic_name, partitions(topic))).collect())
    }
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

/// Describes a mirror as far as the page has room. Its partitions are counted by state in the answer in
/// which it begins, and not again in those that go on with it.
async fn describe_one(
    core: &Rc<Core>,
    counts_only: bool,
    asked: Option<&Asked<'_>>,
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
    let begins_here = !page.goes_on_with(name);
    for topic in topics_of(view.image(), name, asked) {
        let split = if counts_only { Split::unshown(topic.partitions) } else { page.take(name, &topic) };
        let shown = if split.shown.is_empty() { Vec::new() } else { rows(core, name, &split.shown).await };
        if begins_here {
            shown.iter().for_each(|row| *counts.entry(row.state_value.clone()).or_default() += 1);
            for state in state_values(core, name, &split.others).await {
                *counts.entry(state).or_default() += 1;
            }
        }
        if !shown.is_empty() {
            let binding = view.binding(&topic.name);
            described.topics.push(DescribedMirrorTopic {
                topic_name: topic.name.as_str().into(),
                topic_id: topic.id.0,
                desired_state: binding.as_ref().map(|binding| binding.desired.to_string().into()),
                state_version: binding.map_or(-1, |binding| binding.version),
                partitions: shown,
            });
        }
        if page.next.is_some() && !begins_here {
            break;
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

/// The topics asked for of a mirror, in the order of their names.
fn topics_of(image: &MetadataImage, mirror: &str, asked: Option<&Asked<'_>>) -> Vec<AskedTopic> {
    let mut found = Vec::new();
    for name in image.bindings().topics_of(mirror) {
        let wanted = match asked.map(|asked| asked.0.get(&**name)) {
            Some(None) => continue,
            Some(Some(partitions)) => partitions.as_ref(),
            None => None,
        };
        let Some(topic) = image.topics().by_name(name) else { continue };
        let partitions = topic
            .partitions
            .keys()
            .filter(|index| wanted.is_none_or(|wanted| wanted.contains(&index.0)))
            .map(|&partition| TopicIdPartition { topic_id: topic.id, partition });
        found.push(AskedTopic { name: name.to_string(), id: topic.id, partitions: partitions.collect() });
    }
    found
}

/// The states of partitions, as they are shown, for those who only count them.
async fn state_values(core: &Rc<Core>, mirror: &str, partitions: &[TopicIdPartition]) -> Vec<Str> {
    if partitions.is_empty() {
        return Vec::new();
    }
    let known = mirror_states::read(core, mirror, partitions.to_vec()).await;
    let standings = core.node().mirrors().map(|manager| manager.offsets(mirror, partitions));
    let mut standings = standings.unwrap_or_default().into_iter();
    partitions
        .iter()
        .map(|partition| row(*partition, state_of(&known, partition), standings.next().flatten(), None))
        .map(|row| row.state_value)
        .collect()
}

fn state_of<'a>(known: &'a Known, partition: &TopicIdPartition) -> Option<&'a PartitionState> {
    known.get(partition).and_then(|known| known.as_ref().ok()).and_then(Option::as_ref)
}

/// What is shown of these partitions, in their order.
pub(super) async fn rows(
    core: &Rc<Core>,
    mirror: &str,
    partitions: &[TopicIdPartition],
) -> Vec<DescribedMirrorPartition> {
    let known = mirror_states::read(core, mirror, partitions.to_vec()).await;
    let ends = ends(core, partitions).await;
    let standings = core.node().mirrors().map(|manager| manager.offsets(mirror, partitions));
    let mut standings = standings.unwrap_or_default().into_iter();
    partitions
        .iter()
        .map(|partition| {
            row(*partition, state_of(&known, partition), standings.next().flatten(), ends.get(partition))
        })
        .collect()
}

/// One line: what is live on the leader wins over what was last written down. That a partition is mirroring
/// only its leader can say: written down it means that it was.
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
    let was_mirroring = known.and_then(|known| known.state) == Some(MirrorState::Mirroring);
    if standing.is_none() && was_mirroring {
        row.state_value = NO_STATE.into();
        row.reason_code = Some(Reason::DestinationNoLeader.code().into());
        row.error_message = Some(NOBODY_MIRRORS.into());
    }
    if let Some(standing) = standing {
        row.state_value = standing.state.name().into();
        row.error_message = standing.message.map(Str::from);
        row.retry_attempt = standing.retry_attempt;
        row.reason_code = standing.reason.map(|reason| reason.code().into());
        row.source_offset = standing.source_high_watermark.map_or(-1, |at| at.0);
        row.lag_ms = age(standing.lag_ms);
        row.last_fetch_age_ms = age(standing.last_fetch_age_ms);
    }
    // It may be what an older version of the binding came to, which whoever asked for a new one has to tell apart.
    let failed = known.filter(|known| known.state == Some(MirrorState::Failed));
    let is_shown = |known: &&PartitionState| {
        &*row.state_value == MirrorState::Failed.name() && known.reason_code == row.reason_code
    };
    row.state_version = failed.filter(is_shown).map_or(-1, |known| known.state_version);
    row
}

fn age(age_ms: Option<u64>) -> i64 {
    age_ms.and_then(|age_ms| i64::try_from(age_ms).ok()).unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_image::MetadataDelta;
    use tarn_record::PartitionIndex;
    use tarn_wire::MetadataRecord;
    use tarn_wire::messages::{ConfigRecord, PartitionRecord, TopicRecord};
    use uuid::Uuid;

    #[test]
    fn the_pages_of_a_mirror_together_look_at_each_partition_once() {
        let topics = [topic("a", 1, 3), topic("b", 2, 1), topic("c", 3, 4)];
        let (mut cursor, mut looked_at, mut pages) = (None, Vec::new(), 0);
        loop {
            let mut page = Page { left: 3, cursor: cursor.take(), next: None };
            assert_eq!(page.goes_on_with("m"), pages > 0);
            let shown: Vec<_> = topics.iter().flat_map(|topic| page.take("m", topic).shown).collect();
            assert!(shown.len() <= 3);
            looked_at.extend(shown);
            pages += 1;
            let Some(next) = page.next else { break };
            cursor = Some((next.mirror_name.to_string(), next.topic_name.to_string(), next.partition_index));
        }
        let all: Vec<_> = topics.iter().flat_map(|topic| topic.partitions.clone()).collect();
        assert_eq!((looked_at, pages), (all, 3));
    }

    #[test]
    fn what_is_not_shown_can_still_be_counted() {
        let mut page = Page { left: 2, cursor: Some(("l".to_owned(), "z".to_owned(), 9)), next: None };
        let asked = topic("a", 1, 5);
        let split = page.take("m", &asked);
        assert_eq!(
            split,
            Split { shown: asked.partitions[..2].into(), others: asked.partitions[2..].into() }
        );
        assert_eq!(page.next.map(|next| next.partition_index), Some(2));
    }

    #[test]
    fn what_was_written_down_does_not_say_that_a_partition_is_mirroring_now() {
        let partition = topic("a", 1, 1).partitions[0];
        let shown = |state, standing| {
            let known = PartitionState { state, ..PartitionState::default() };
            let row = row(partition, Some(&known), standing, None);
            (row.state_value.to_string(), row.reason_code.map(|code| code.to_string()))
        };
        let nobody = Some("DESTINATION_NO_LEADER".to_owned());
        assert_eq!(shown(Some(MirrorState::Mirroring), None), ("UNKNOWN".to_owned(), nobody));
        assert_eq!(shown(Some(MirrorState::Stopped), None), ("STOPPED".to_owned(), None));
        assert_eq!(shown(None, None), ("UNKNOWN".to_owned(), None));
        let standing = Standing {
            state: MirrorState::Mirroring,
            retry_attempt: 0,
            reason: None,
            message: None,
            source_high_watermark: None,
            local_high_watermark: None,
            lag_ms: None,
            last_fetch_age_ms: None,
        };
        assert_eq!(shown(Some(MirrorState::LogAlignment), Some(standing)), ("MIRRORING".to_owned(), None));
    }

    #[test]
    fn what_was_written_down_of_a_failure_says_of_which_version_it_is() {
        let partition = topic("a", 1, 1).partitions[0];
        let known = PartitionState {
            state: Some(MirrorState::Failed),
            reason_code: Some("SOURCE_TRUNCATED".into()),
            state_version: 7,
            ..PartitionState::default()
        };
        assert_eq!(row(partition, Some(&known), None, None).state_version, 7);
        let live = |state, reason| Standing {
            state,
            retry_attempt: -1,
            reason: Some(reason),
            message: None,
            source_high_watermark: None,
            local_high_watermark: None,
            lag_ms: None,
            last_fetch_age_ms: None,
        };
        let version =
            |state, reason| row(partition, Some(&known), Some(live(state, reason)), None).state_version;
        assert_eq!(version(MirrorState::Failed, Reason::SourceTruncated), 7);
        assert_eq!(version(MirrorState::Failed, Reason::ConfigInvalid), -1, "that is another failure");
        assert_eq!(version(MirrorState::LogAlignment, Reason::ComparingHistories), -1);
    }

    #[test]
    fn only_the_topics_and_partitions_asked_for_are_described() {
        let mut image = MetadataImage::default();
        for (name, number) in [("a", 1), ("b", 2), ("c", 3)] {
            for record in bound(name, number, 3) {
                image.apply(&record, &mut MetadataDelta::default()).expect("the records fit each other");
            }
        }
        let name = |topic: AskedTopic| (topic.name, topic.partitions.len());
        let all: Vec<_> = topics_of(&image, "m", None).into_iter().map(name).collect();
        assert_eq!(all, [("a".to_owned(), 3), ("b".to_owned(), 3), ("c".to_owned(), 3)]);
        let asked = [named("c", Some(vec![2, 7, 2])), named("a", None), named("nosuch", None)];
        let some = topics_of(&image, "m", Some(&Asked::of(&asked))).into_iter().map(name);
        assert_eq!(some.collect::<Vec<_>>(), [("a".to_owned(), 3), ("c".to_owned(), 1)]);
    }

    fn named(topic: &str, partitions: Option<Vec<i32>>) -> DescribeMirrorTopic {
        DescribeMirrorTopic { topic_name: topic.into(), partitions }
    }

    fn topic(name: &str, number: u128, partitions: i32) -> AskedTopic {
        let id = TopicId(Uuid::from_u128(number));
        let partition = |index| TopicIdPartition { topic_id: id, partition: PartitionIndex(index) };
        AskedTopic { name: name.to_owned(), id, partitions: (0..partitions).map(partition).collect() }
    }

    fn bound(name: &str, number: u128, partitions: i32) -> Vec<MetadataRecord> {
        let topic_id = Uuid::from_u128(number);
        let mut records = vec![TopicRecord { name: name.into(), topic_id }.into()];
        for partition_id in 0..partitions {
            let (replicas, isr) = (vec![1], vec![1]);
            let partition =
                PartitionRecord { topic_id, partition_id, replicas, isr, leader: 1, ..Default::default() };
            records.push(partition.into());
        }
        for (key, value) in [("mirror.name", "m"), ("mirror.desired.state", "mirroring:1")] {
            let config = ConfigRecord {
                resource_type: 2,
                resource_name: name.into(),
                name: key.into(),
                value: Some(value.into()),
            };
            records.push(config.into());
        }
        records
    }
}
