//! The plan against a model of a source broker's fetch sessions.

use super::*;
use proptest::prelude::*;
use tarn_wire::messages::fetch_response::{EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch};

const SIZES: FetchSizes =
    FetchSizes { max_wait_ms: 500, min_bytes: 1, max_bytes: 1 << 20, partition_max_bytes: 1 << 20 };

/// A broker with one session at most. A record is one byte: its offset modulo 256.
#[derive(Default)]
struct ModelSource {
    ends: BTreeMap<(Uuid, i32), i64>,
    session: Option<(i32, i32)>,
    interest: BTreeMap<(Uuid, i32), (i64, Option<i64>)>,
    sessions_begun: i32,
}

impl ModelSource {
    fn answer(&mut self, request: &FetchRequest) -> FetchResponse {
        if request.session_epoch == 0 {
            self.sessions_begun += 1;
            self.session = Some((self.sessions_begun, 1));
            self.interest.clear();
        } else if self.session != Some((request.session_id, request.session_epoch)) {
            let error_code = ErrorCode::FETCH_SESSION_ID_NOT_FOUND.0;
            return FetchResponse { error_code, ..FetchResponse::default() };
        } else {
            self.session = Some((request.session_id, request.session_epoch + 1));
        }
        for topic in &request.topics {
            for asked in &topic.partitions {
                let known = self.interest.entry((topic.topic_id, asked.partition)).or_insert((0, None));
                known.0 = asked.fetch_offset;
            }
        }
        for topic in &request.forgotten_topics_data {
            for partition in &topic.partitions {
                self.interest.remove(&(topic.topic_id, *partition));
            }
        }
        let mut response =
            FetchResponse { session_id: self.session.map_or(0, |(id, _)| id), ..FetchResponse::default() };
        for (&(topic_id, partition), (offset, told)) in &mut self.interest {
            let end = self.ends.get(&(topic_id, partition)).copied().unwrap_or(0);
            if *offset >= end && *told == Some(end) {
                continue;
            }
            *told = Some(end);
            let records: Vec<u8> = (*offset..end).take(3).map(|offset| offset as u8).collect();
            response.responses.push(answered(topic_id, partition, end, records));
        }
        response
    }
}

fn answered(topic_id: Uuid, partition: i32, end: i64, records: Vec<u8>) -> FetchableTopicResponse {
    FetchableTopicResponse {
        topic_id,
        partitions: vec![PartitionData {
            partition_index: partition,
            high_watermark: end,
            log_start_offset: 0,
            records: Some(Bytes::from(records).into()),
            diverging_epoch: EpochEndOffset::default(),
            current_leader: LeaderIdAndEpoch::default(),
            ..PartitionData::default()
        }],
        ..FetchableTopicResponse::default()
    }
}

#[test]
fn the_second_request_names_only_what_has_changed() {
    let (mut plan, mut source) = (plan(), ModelSource::default());
    for partition in 0..3 {
        plan.add(assignment(partition, 1, 0));
    }
    source.ends.insert((topic().id.0, 1), 2);
    let (first, naming) = plan.request(SIZES);
    assert_eq!((named(&first), naming), (vec![(0, 0), (1, 0), (2, 0)], Naming::Ids));
    let news = news(plan.receive(source.answer(&first)));
    assert_eq!(news.len(), 3, "each is told of once");
    plan.advance(partition(1), 1, Offset(2), Epoch(0));
    let (second, _) = plan.request(SIZES);
    assert_eq!(named(&second), [(1, 2)]);
    assert_eq!((second.session_id, second.session_epoch), (1, 1));
}

#[test]
fn a_partition_that_left_is_forgotten_at_the_source() {
    let (mut plan, mut source) = (plan(), ModelSource::default());
    plan.add(assignment(0, 1, 0));
    plan.add(assignment(1, 2, 0));
    let (first, _) = plan.request(SIZES);
    plan.receive(source.answer(&first));
    assert_eq!(plan.remove(partition(0)), Some(1));
    assert_eq!(plan.remove(partition(0)), None);
    let (second, _) = plan.request(SIZES);
    assert_eq!(second.forgotten_topics_data[0].partitions, [0]);
    plan.receive(source.answer(&second));
    assert_eq!(source.interest.len(), 1);
}

#[test]
fn what_comes_back_is_forgotten_first_so_that_it_is_told_again_how_far_the_source_is() {
    type Again = fn(&mut FetchPlan);
    let again: [Again; 2] = [|plan| assert_eq!(plan.remove(partition(0)), Some(1)), |_| {}];
    for before in again {
        let (mut plan, mut source) = (plan(), ModelSource::default());
        source.ends.insert((topic().id.0, 0), 5);
        plan.add(assignment(0, 1, 5));
        plan.add(assignment(1, 2, 0));
        let (first, _) = plan.request(SIZES);
        assert_eq!(news(plan.receive(source.answer(&first))).len(), 2);
        before(&mut plan);
        plan.add(assignment(0, 3, 5));
        let (second, _) = plan.request(SIZES);
        assert_eq!((named(&second), second.forgotten_topics_data.len()), (vec![], 1));
        assert_eq!(second.max_wait_ms, 0, "nobody waits for news of another one");
        assert!(news(plan.receive(source.answer(&second))).is_empty());
        let (third, _) = plan.request(SIZES);
        assert_eq!((named(&third), third.max_wait_ms), (vec![(0, 5)], SIZES.max_wait_ms));
        let told = news(plan.receive(source.answer(&third)));
        assert_eq!(told.iter().map(|news| news.serial).collect::<Vec<_>>(), [3]);
    }
}

#[test]
fn an_answer_to_an_offset_that_is_not_wanted_any_more_is_dropped() {
    let (mut plan, mut source) = (plan(), ModelSource::default());
    source.ends.insert((topic().id.0, 0), 9);
    plan.add(assignment(0, 1, 0));
    let (request, _) = plan.request(SIZES);
    plan.again(partition(0), 1, Offset(2));
    assert!(news(plan.receive(source.answer(&request))).is_empty());
    let (request, _) = plan.request(SIZES);
    assert_eq!(named(&request), [(0, 2)]);
}

#[test]
fn a_lost_session_is_begun_anew_with_everything() {
    let (mut plan, mut source) = (plan(), ModelSource::default());
    plan.add(assignment(0, 1, 0));
    plan.add(assignment(1, 2, 7));
    let (first, _) = plan.request(SIZES);
    plan.receive(source.answer(&first));
    source.session = None;
    let (second, _) = plan.request(SIZES);
    let lost = plan.receive(source.answer(&second));
    assert!(matches!(lost, Received::SessionLost(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)), "{lost:?}");
    let (third, _) = plan.request(SIZES);
    assert_eq!((named(&third), third.session_epoch), (vec![(0, 0), (1, 7)], 0));
}

#[test]
fn a_source_without_sessions_is_asked_first_for_who_waited_longest() {
    let mut plan = plan();
    plan.add(assignment(0, 1, 0));
    plan.add(assignment(1, 2, 0));
    let (_, _) = plan.request(SIZES);
    let response = FetchResponse {
        responses: vec![answered(topic().id.0, 0, 3, vec![0, 1, 2])],
        ..FetchResponse::default()
    };
    assert_eq!(news(plan.receive(response)).len(), 1);
    plan.advance(partition(0), 1, Offset(3), Epoch(0));
    assert_eq!(named(&plan.request(SIZES).0), [(1, 0), (0, 3)]);
}

#[test]
fn a_topic_without_an_id_is_asked_for_by_name() {
    let mut plan = plan();
    let nameless = Arc::new(TopicAtSource { name: "old".into(), id: TopicId::ZERO });
    plan.add(Assignment { topic: nameless, ..assignment(0, 1, 0) });
    assert_eq!(plan.request(SIZES).1, Naming::Names);
    let mut response =
        FetchResponse { responses: vec![answered(Uuid::nil(), 0, 3, vec![0])], ..FetchResponse::default() };
    response.responses[0].topic = "old".into();
    assert_eq!(news(plan.receive(response)).len(), 1);
}

#[test]
fn the_new_leader_is_read_from_the_answer() {
    let mut plan = plan();
    plan.add(assignment(0, 1, 0));
    plan.request(SIZES);
    let mut response = FetchResponse {
        responses: vec![answered(topic().id.0, 0, -1, vec![])],
        node_endpoints: vec![NodeEndpoint {
            node_id: 4,
            host: "there".into(),
            port: 9092,
            ..NodeEndpoint::default()
        }],
        ..FetchResponse::default()
    };
    response.responses[0].partitions[0].error_code = ErrorCode::NOT_LEADER_OR_FOLLOWER.0;
    response.responses[0].partitions[0].current_leader = LeaderIdAndEpoch { leader_id: 4, leader_epoch: 8 };
    let endpoint = Some(Endpoint { host: "there".into(), port: 9092 });
    let expected = LeaderHint { leader: BrokerId(4), epoch: Epoch(8), endpoint };
    match &news(plan.receive(response))[0].what {
        What::Error(ErrorCode::NOT_LEADER_OR_FOLLOWER, Some(hint)) => assert_eq!(*hint, expected),
        other => panic!("{other:?}"),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(i32),
    Remove(i32),
    Produce(i32, i64),
    AppendFails(i32),
    LoseSession,
    Fetch,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever goes wrong in between, what is handed out continues what was taken, and in the end all
    /// there is at the source has been taken, and everybody was told how far it is.
    #[test]
    fn everything_is_fetched_once_and_in_order(steps in prop::collection::vec(any_step(), 0..120)) {
        let (mut plan, mut source) = (plan(), ModelSource::default());
        let mut taken: BTreeMap<i32, (u64, i64)> = BTreeMap::new();
        let mut told = BTreeSet::new();
        let mut serials = 0;
        for step in steps {
            match step {
                Step::Add(index) => {
                    serials += 1;
                    let from = taken.get(&index).map_or(0, |(_, next)| *next);
                    taken.insert(index, (serials, from));
                    plan.add(assignment(index, serials, from));
                }
                Step::Remove(index) => {
                    plan.remove(partition(index));
                }
                Step::Produce(index, count) => *source.ends.entry((topic().id.0, index)).or_default() += count,
                Step::AppendFails(index) => {
                    if let Some((serial, next)) = taken.get_mut(&index) {
                        *next = (*next - 2).max(0);
                        plan.again(partition(index), *serial, Offset(*next));
                    }
                }
                Step::LoseSession => source.session = None,
                Step::Fetch => fetch(&mut plan, &mut source, &mut taken, &mut told)?,
            }
        }
        for _ in 0..400 {
            fetch(&mut plan, &mut source, &mut taken, &mut told)?;
        }
        for (index, (serial, next)) in &taken {
            if plan.serial(partition(*index)) == Some(*serial) {
                prop_assert_eq!(*next, source.ends.get(&(topic().id.0, *index)).copied().unwrap_or(0));
                prop_assert!(told.contains(serial));
            }
        }
    }
}

fn fetch(
    plan: &mut FetchPlan,
    source: &mut ModelSource,
    taken: &mut BTreeMap<i32, (u64, i64)>,
    told: &mut BTreeSet<u64>,
) -> Result<(), TestCaseError> {
    let (request, _) = plan.request(SIZES);
    let Received::News(news) = plan.receive(source.answer(&request)) else { return Ok(()) };
    for News { partition, serial, asked, what, .. } in news {
        let What::Records { records, .. } = what else { panic!("the model knows no errors") };
        let (expected_serial, next) = taken.get_mut(&partition.partition.0).expect("it was added");
        prop_assert_eq!((serial, asked.0), (*expected_serial, *next));
        told.insert(serial);
        for byte in &records {
            prop_assert_eq!(*byte, *next as u8);
            *next += 1;
        }
        if !records.is_empty() {
            plan.advance(partition, serial, Offset(*next), Epoch(0));
        }
    }
    Ok(())
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..4i32).prop_map(Step::Add),
        1 => (0..4i32).prop_map(Step::Remove),
        3 => (0..4i32, 1..9i64).prop_map(|(index, count)| Step::Produce(index, count)),
        1 => (0..4i32).prop_map(Step::AppendFails),
        1 => Just(Step::LoseSession),
        4 => Just(Step::Fetch),
    ]
}

fn plan() -> FetchPlan {
    let mut plan = FetchPlan::default();
    plan.connected(Dialect { topic_ids: true, last_fetched_epoch: true });
    plan
}

fn topic() -> Arc<TopicAtSource> {
    Arc::new(TopicAtSource { name: "orders".into(), id: TopicId(Uuid::from_u128(77)) })
}

fn partition(index: i32) -> TopicIdPartition {
    TopicIdPartition { topic_id: TopicId(Uuid::from_u128(77)), partition: PartitionIndex(index) }
}

fn assignment(index: i32, serial: u64, from: i64) -> Assignment {
    Assignment {
        partition: partition(index),
        topic: topic(),
        serial,
        generation: MirrorGeneration(serial),
        from: Offset(from),
        last_epoch: Epoch::NONE,
        leader_epoch: Epoch(0),
        compacted: false,
    }
}

fn named(request: &FetchRequest) -> Vec<(i32, i64)> {
    let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|asked| (asked.partition, asked.fetch_offset)).collect()
}

fn news(received: Received) -> Vec<News> {
    match received {
        Received::News(news) => news,
        lost => panic!("{lost:?}"),
    }
}
