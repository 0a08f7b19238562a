//! Fetch sessions over the wire: what a client is told where there is no room for its session.

use tarn_broker::limits::FETCH_SESSION_PARTITIONS_PER_CORE;
use tarn_wire::messages::FetchRequest;
use tarn_wire::messages::fetch_request::{FetchPartition, FetchTopic};

use crate::running::{Client, Running};

#[test]
fn a_session_of_more_partitions_than_there_is_room_for_is_none() {
    let node = Running::new("tarn.cores=0\n");
    let mut client = node.client();
    client.create("t", 1, &[]);
    let limit = FETCH_SESSION_PARTITIONS_PER_CORE as i32;
    assert_eq!(fetch(&mut client, (0, 0), 0..limit + 1), 0, "it is answered, and no session");
    let session = fetch(&mut client, (0, 0), 0..3);
    assert!(session > 0, "what did not fit takes no room");
    assert_eq!(client.call(12, &request((session, 1), 0..0)).session_id, session);
}

/// Fetches these partitions of "t" in a session and an epoch; the session of the answer.
fn fetch(client: &mut Client, session: (i32, i32), partitions: std::ops::Range<i32>) -> i32 {
    let fetched = client.call(12, &request(session, partitions));
    assert_eq!(fetched.error_code, 0);
    assert!(!fetched.responses[0].partitions.is_empty(), "whatever becomes of the session");
    fetched.session_id
}

fn request((session_id, session_epoch): (i32, i32), partitions: std::ops::Range<i32>) -> FetchRequest {
    let of = |partition| FetchPartition { partition, partition_max_bytes: 1000, ..Default::default() };
    let topic =
        FetchTopic { topic: "t".into(), partitions: partitions.map(of).collect(), ..Default::default() };
    FetchRequest {
        replica_id: -1,
        max_bytes: 1000,
        session_id,
        session_epoch,
        topics: if topic.partitions.is_empty() { Vec::new() } else { vec![topic] },
        ..Default::default()
    }
}
