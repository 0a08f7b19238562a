//! A deleted mirror leaves nothing behind for the next one of its name.

use tarn_mirror::state::MirrorState;
use tarn_wire::messages::write_mirror_states_request::{WriteMirrorStatePartition, WriteMirrorStateTopic};
use tarn_wire::messages::*;
use tarn_wire::{ErrorCode, MetadataRecord};
use tempfile::TempDir;
use uuid::Uuid;

use crate::mirrored::{Source, await_state, start, state, topic_id};
use crate::running::{Client, Running};

/// The last mirror position that the tests write.
const POSITION: i64 = 3;

#[test]
fn a_mirror_takes_what_the_coordinators_keep_of_it_along() {
    let Left { source, files, id, version } = left();
    let node = Running::again_knowing(files.path(), &[stopped(version)]);
    let mut client = node.client();
    assert_eq!(state(&mut client, id).last_mirror_offset, POSITION, "it is kept while there is the mirror");
    let deleted = client.call(0, &delete());
    assert_eq!((deleted.error_code, deleted.error_message), (0, None));
    let left = state(&mut client, id);
    assert_eq!((left.state, left.last_mirror_offset), (-1, -1));
    source.begin(&node);
    let fresh = await_state(&mut client, id, |state| state.state != -1);
    assert_eq!(fresh.last_mirror_offset, -1);
    drop(client);
    let node = Running::again(node.stop().path());
    let again = state(&mut node.client(), id);
    assert_eq!(again.last_mirror_offset, -1, "it is gone from the log too");
    assert!(again.state_version >= fresh.state_version, "what was written since is not");
}

#[test]
fn a_mirror_is_forgotten_though_nobody_waits_for_it() {
    let Left { files, id, version, .. } = left();
    let node = Running::again_knowing(files.path(), &[stopped(version)]);
    let mut client = node.client();
    assert_eq!(state(&mut client, id).last_mirror_offset, POSITION, "its coordinator is loaded");
    let list = ListClusterMirrorsRequest::default();
    while !client.call(0, &list).mirrors.is_empty() {
        // Hangs up at once.
        node.client().send(0, &delete());
    }
    await_state(&mut client, id, |state| state.state == -1 && state.last_mirror_offset == -1);
}

#[test]
fn a_mirror_that_was_deleted_unheard_is_forgotten_before_its_name_is_used_again() {
    let Left { source, files, id, .. } = left();
    let node = Running::again_knowing(files.path(), &deletion());
    source.begin(&node);
    let fresh = await_state(&mut node.client(), id, |state| state.state != -1);
    assert_eq!(fresh.last_mirror_offset, -1);
}

#[test]
fn a_mirror_that_was_deleted_unheard_is_forgotten_when_its_coordinator_is_loaded() {
    let Left { files, id, .. } = left();
    let node = Running::again_knowing(files.path(), &deletion());
    await_state(&mut node.client(), id, |state| state.state == -1 && state.last_mirror_offset == -1);
}

#[test]
fn what_was_under_way_when_a_binding_ended_is_not_taken() {
    let Left { files, id, version, .. } = left();
    let newer = config(2, "t", "mirror.desired.state", Some(&format!("paused:{}", version + 1)));
    let node = Running::again_knowing(files.path(), &[newer]);
    let mut client = node.client();
    assert_eq!(write_position(&mut client, id, version, 0), ErrorCode::FENCED_STATE_EPOCH);
    assert_eq!(state(&mut client, id).last_mirror_offset, POSITION);
}

#[test]
fn a_topic_that_was_stopped_and_deleted_is_mirrored_again_though_its_leader_epochs_begin_anew() {
    let Left { source: _source, files, id, version } = left();
    let node = Running::again_knowing(files.path(), &[stopped(version)]);
    let mut client = node.client();
    let stop = WriteMirrorStatePartition {
        state: MirrorState::Stopped.to_byte(),
        leader_epoch: 15,
        state_version: version,
        ..WriteMirrorStatePartition::default()
    };
    assert_eq!(write(&mut client, id, stop), ErrorCode::NONE);
    client.delete("t");
    start(&mut client);
    let fresh = await_state(&mut client, id, |state| state.state == MirrorState::Mirroring.to_byte());
    assert!(fresh.state_version > version, "{fresh:?}");
    assert_eq!(fresh.last_mirror_offset, -1, "the position is of the log that was deleted");
}

/// A mirror whose node has stopped.
struct Left {
    source: Source,
    /// The directory of its node, in which there are a state and a position of `t`.
    files: TempDir,
    /// The id of `t`.
    id: Uuid,
    /// The version of its binding.
    version: i64,
}

fn left() -> Left {
    let (source, node) = Source::mirrored();
    let mut client = node.client();
    let id = topic_id(&mut client);
    let version = await_state(&mut client, id, |state| state.state != -1).state_version;
    assert_eq!(write_position(&mut client, id, version, POSITION), ErrorCode::NONE);
    drop(client);
    Left { source, files: node.stop(), id, version }
}

/// Writes a last mirror position of `t` under a binding of this version.
fn write_position(client: &mut Client, topic_id: Uuid, state_version: i64, offset: i64) -> ErrorCode {
    let position = WriteMirrorStatePartition {
        last_mirror_offset: offset,
        state_version,
        ..WriteMirrorStatePartition::default()
    };
    write(client, topic_id, position)
}

/// Has the coordinator write this of `t`.
fn write(client: &mut Client, topic_id: Uuid, partition: WriteMirrorStatePartition) -> ErrorCode {
    let topic = WriteMirrorStateTopic { topic_name: "t".into(), topic_id, partitions: vec![partition] };
    let request = WriteMirrorStatesRequest { mirror_name: "m".into(), topics: vec![topic] };
    ErrorCode(client.call(0, &request).topics[0].partitions[0].error_code)
}

fn delete() -> DeleteClusterMirrorRequest {
    DeleteClusterMirrorRequest { mirror_name: "m".into(), ..DeleteClusterMirrorRequest::default() }
}

/// `t` as a stopped topic of `m`.
fn stopped(version: i64) -> MetadataRecord {
    config(2, "t", "mirror.desired.state", Some(&format!("stopped:{version}")))
}

/// What the deletion of `m` writes.
fn deletion() -> Vec<MetadataRecord> {
    vec![
        config(2, "t", "mirror.name", None),
        config(2, "t", "mirror.desired.state", None),
        config(64, "m", "bootstrap.servers", None),
        config(64, "m", "source.cluster.id", None),
        config(64, "m", "topics.include", None),
    ]
}

fn config(kind: i8, resource: &str, key: &str, value: Option<&str>) -> MetadataRecord {
    ConfigRecord {
        resource_type: kind,
        resource_name: resource.into(),
        name: key.into(),
        value: value.map(Into::into),
    }
    .into()
}
