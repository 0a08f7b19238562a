//! A newest batch of ours that is not what was written any more.

use tarn_image::config::server::MirrorNodeConfig;
use tarn_mirror::reasons::Reason;
use tarn_mirror::state::MirrorState;

use super::cluster::Cluster;
use super::diverged::{end, mirrored, mirrors, partition};
use super::{Mirroring, eventually, eventually_some, node};

#[test]
fn damage_here_is_not_blamed_on_the_source_and_nothing_is_dropped_for_it() {
    let (_source, _serving, cluster, mirror) = mirrored();
    let before = end(&cluster);
    drop(mirror);
    damage(&cluster, true);
    let node = MirrorNodeConfig { retry_initial_backoff_ms: 10, retry_max_backoff_ms: 40, ..node() };
    let mirror = Mirroring::with(&cluster, &node);
    for wanted in ["mirroring:1", "mirroring:2:truncate"] {
        cluster.want("orders", wanted);
        let looked = asked(&cluster);
        eventually(|| asked(&cluster) > looked + 2);
        let is_failed = |now: &super::Standing| now.state == MirrorState::Failed;
        let standing = eventually_some(|| mirror.standing(&cluster, "orders", 0).filter(is_failed));
        assert_eq!(standing.reason, Some(Reason::DestinationStorage), "{wanted}");
        let said = standing.message.unwrap_or_default();
        assert!(said.contains("is damaged at byte 7"), "{said}");
        assert_ne!(standing.retry_attempt, -1, "whoever mends the disk has not to say so");
    }
    assert!(cluster.state().truncations.is_empty());
    assert_eq!(end(&cluster), before);
    damage(&cluster, false);
    mirrors(&cluster, &mirror);
}

fn damage(cluster: &Cluster, is_damaged: bool) {
    let partition = partition(cluster);
    cluster.state().logs.get_mut(&partition).expect("it is there").is_damaged = is_damaged;
}

/// How often histories were compared, and more.
fn asked(cluster: &Cluster) -> usize {
    cluster.state().asked.get("batches").copied().unwrap_or(0)
}
