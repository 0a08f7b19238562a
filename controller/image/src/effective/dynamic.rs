//! Which of the broker keys that Kafka changes while it runs a node of Tarn acts on at once, and what becomes of the others.

use super::{cleaner, connections, topic};
use crate::config::table;

/// Keys that a running node keeps and shows when they are altered, and does not act on.
#[derive(Debug)]
pub struct Kept {
    /// Their names; one that ends with a dot stands for all that begin so.
    pub names: &'static [&'static str],
    /// What Kafka does with them.
    pub kafka: &'static str,
    /// What Tarn does instead.
    pub tarn: &'static str,
}

/// See [`Kept`].
pub const KEPT: &[Kept] = &[
    Kept {
        names: &["listeners", "listener.security.protocol.map"],
        kafka: "Opens listeners, and closes those that are not named any more.",
        tarn: "Listens where the file of the node says, from its start on.",
    },
    Kept {
        names: &["ssl.", "sasl.", "principal.builder.class"],
        kafka: "Changes keys, certificates and mechanisms of a listener.",
        tarn: "Has PLAINTEXT only.",
    },
    Kept {
        names: &[
            "num.io.threads",
            "num.network.threads",
            "background.threads",
            "num.recovery.threads.per.data.dir",
            "num.replica.fetchers",
        ],
        kafka: "Resizes a pool of threads.",
        tarn: "Has no such pool: each core serves its connections and partitions, and has threads beside it for what \
               waits for the disk.",
    },
    Kept {
        names: &["mirror.num.replica.fetchers", "mirror.metadata.refresh.interval.ms"],
        kafka: "Has them by KIP-1279 only.",
        tarn: "Acts on what the file says, from its start on.",
    },
    Kept {
        names: &["log.cleaner.io.buffer.size", "log.cleaner.io.buffer.load.factor"],
        kafka: "Makes the cleaner's buffers so large, and fills its map of keys so far.",
        tarn: "Reads and writes in pieces of its own size; the map grows with its keys, within \
               `log.cleaner.dedupe.buffer.size`.",
    },
    Kept { names: &["log.preallocate"], kafka: "Allocates new segments in full.", tarn: "Never does." },
    Kept {
        names: &["cordoned.log.dirs"],
        kafka: "Places no new replicas in these directories.",
        tarn: "Places them where the fewest are.",
    },
    Kept {
        names: &["unclean.leader.election.enable"],
        kafka: "Lets the controller elect a replica that lacks records.",
        tarn: "Has one replica of each partition, so that there is nobody to elect.",
    },
    Kept {
        names: &["transaction.partition.verification.enable"],
        kafka: "Asks the coordinator before a partition takes the first batch of a transaction.",
        tarn: "Has no coordinator of transactions yet, and takes them without.",
    },
    Kept {
        names: &["group.", "share.", "errors.deadletterqueue."],
        kafka: "Changes how its coordinators of groups work.",
        tarn: "Has no groups yet.",
    },
    Kept {
        names: &["remote.", "log.remote.", "log.local.", "follower.fetch.last.tiered.offset.enable"],
        kafka: "Changes how its tiered storage works.",
        tarn: "Has none.",
    },
    Kept {
        names: &["metric.reporters", "config.providers"],
        kafka: "Loads classes.",
        tarn: "Is not written in Java; metrics are told over HTTP.",
    },
];

/// The broker keys that a node looks up when it needs them, so that a change is in force at once: those that give topics
/// their defaults, as far as these are acted on; those of the cleaner, and of connections.
pub fn acted_on_at_once() -> impl Iterator<Item = &'static str> {
    let acted_on = table::topic_keys().iter().filter(|key| topic::acts_on(key.name));
    let defaults = acted_on.flat_map(|key| key.synonyms).map(|synonym| synonym.name);
    defaults.chain(cleaner::KEYS).chain(connections::KEYS).chain(["producer.id.expiration.ms"])
}

impl Kept {
    /// True where it speaks of this key.
    pub fn names(&self, key: &str) -> bool {
        self.names.iter().any(|name| if name.ends_with('.') { key.starts_with(name) } else { key == *name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::table::Update;
    use std::collections::BTreeSet;

    #[test]
    fn of_every_dynamic_key_it_is_said_once_whether_it_acts_at_once() {
        let at_once: BTreeSet<&str> = acted_on_at_once().collect();
        for key in table::broker_keys().filter(|key| key.update != Update::ReadOnly) {
            let said = KEPT.iter().filter(|kept| kept.names(key.name)).count();
            assert_eq!(said, usize::from(!at_once.contains(key.name)), "{}", key.name);
        }
        for name in KEPT.iter().flat_map(|kept| kept.names) {
            let alone = Kept { names: std::slice::from_ref(name), kafka: "", tarn: "" };
            let is_known = |key: &str| alone.names(key);
            assert!(
                table::broker_keys().any(|key| key.update != Update::ReadOnly && is_known(key.name)),
                "{name}"
            );
        }
    }
}
