//! A lane by itself, at a broker that is not of its source's cluster.

use std::sync::Arc;
use std::time::Duration;

use futures_lite::future;
use tarn_image::config::mirror::MirrorConfig;
use tarn_mirror::fetch::budget::FetchBudget;
use tarn_mirror::fetch::lane::{self, LaneCommand, LaneReport, LaneSpec};
use tarn_mirror::fetch::plan::{Assignment, TopicAtSource};
use tarn_mirror::fetch::progress::{Clock, LaneProgress};
use tarn_mirror::local_cluster::MirrorGeneration;
use tarn_mirror::post::Post;
use tarn_mirror::reasons::Reason;
use tarn_record::{Epoch, Offset, PartitionIndex, TopicId, TopicIdPartition};
use tarn_runtime::sleep;
use tarn_transport::Endpoint;

use super::cluster::Cluster;
use super::source::Source;
use super::{config, on_a_core, produce};

#[test]
fn nothing_is_fetched_from_a_broker_of_another_cluster() {
    let other = Source::new("other");
    other.topic("orders", 1, 0);
    produce(&other, "orders", 0, 1);
    let _serving = other.serve();
    let port = other.state().port;
    let (cluster, id) = (Cluster::new(port, "orders"), other.id("orders"));
    let trouble = on_a_core(move || async move {
        let progress = LaneProgress::new(Clock::start());
        let commands = Arc::new(Post::default());
        commands.put(LaneCommand::Add(vec![assignment(id)]));
        let told = commands.clone();
        let spec = LaneSpec {
            mirror: "m".into(),
            client_id: "lane".into(),
            config: Arc::new(MirrorConfig { source_cluster_id: Some("source".into()), ..config(port) }),
            endpoint: Endpoint { host: "127.0.0.1".into(), port },
            batch_max_bytes: 1 << 20,
            commands,
            report: Box::new(move |report| {
                if let LaneReport::LinkChanged = report {
                    told.put(LaneCommand::Stop);
                }
            }),
            budget: FetchBudget::new(64 << 20),
            progress: progress.clone(),
            metrics: Arc::default(),
        };
        // A lane that fetches from there never ends by itself.
        future::or(lane::run(spec, cluster), sleep(Duration::from_secs(10))).await;
        progress.link()
    });
    assert_eq!(trouble.map(|trouble| trouble.reason), Some(Reason::SourceClusterChanged));
    assert!(other.state().fetched_from.is_empty());
}

fn assignment(id: TopicId) -> Assignment {
    Assignment {
        partition: TopicIdPartition { topic_id: id, partition: PartitionIndex(0) },
        topic: Arc::new(TopicAtSource { name: "orders".into(), id }),
        serial: 1,
        generation: MirrorGeneration(1),
        from: Offset(0),
        last_epoch: Epoch::NONE,
        leader_epoch: Epoch(0),
        compacted: false,
    }
}
