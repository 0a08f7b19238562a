//! Topics that are discovered, and operators who change their minds while the source is asked.

use super::cluster::Cluster;
use super::source::Source;
use super::{Mirroring, caught_up, eventually, produce};

#[test]
fn what_was_found_before_a_stop_of_everything_is_left_out_by_the_controller_and_that_is_no_trouble() {
    let source = Source::new("source");
    source.topic("orders", 1, 0);
    produce(&source, "orders", 0, 2);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders,later");
    let mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    // The lists as this broker has them still mean the topic.
    cluster.state().has_nothing_to_discover = true;
    source.topic("later", 1, 0);
    eventually(|| cluster.state().starts_asked >= 3);
    assert_eq!(cluster.partition("later", 0), None);
    assert_eq!(troubles(&mirror), Vec::<String>::new());
    cluster.state().has_nothing_to_discover = false;
    eventually(|| caught_up(&source, &cluster, "later", 1));
}

#[test]
fn a_topic_that_is_stopped_while_its_source_is_asked_how_it_has_grown_is_no_trouble() {
    let source = Source::new("source");
    source.topic("orders", 1, 0);
    let _serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let mirror = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    source.grow("orders");
    // A second one is asked for only when the answer to the first has been told.
    eventually(|| cluster.state().asked.get("CreatePartitionsRequest").is_some_and(|asked| *asked >= 2));
    assert_eq!(troubles(&mirror), Vec::<String>::new());
}

/// What the mirror's tasks complain of.
fn troubles(mirror: &Mirroring) -> Vec<String> {
    mirror.handle.tasks("m").into_iter().filter_map(|task| task.message).collect()
}
