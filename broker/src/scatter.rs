//! One request about many partitions: one envelope for each core that owns some of them, and the answers
//! back in the order of the questions.
//!
//! Sending and awaiting are two steps, because what a connection sends must keep its order while answers
//! may come in any. Every core answers with one answer for each question it was sent.

use std::collections::BTreeMap;
use std::rc::Rc;

use tarn_record::TopicIdPartition;
use tarn_runtime::CoreId;
use tarn_runtime::channel::{Reply, ReplySlot, reply};

use crate::core::Core;
use crate::envelope::Envelope;

/// Answers that are on their way.
#[must_use = "the answers are still to be gathered"]
pub struct Scattered<A> {
    /// For each question: the place of its core among the replies.
    asked: Vec<usize>,
    replies: Vec<Reply<Vec<A>>>,
}

/// Sends every question to the core that owns its partition; returns once all are on their way. Those of
/// this core come last, because what it answers it does here and now, while the others work.
pub async fn scatter<Q, A: Send>(
    core: &Rc<Core>,
    questions: impl IntoIterator<Item = Q>,
    partition_of: impl Fn(&Q) -> TopicIdPartition,
    envelope: impl Fn(Vec<Q>, ReplySlot<Vec<A>>) -> Envelope,
) -> Scattered<A> {
    let Grouped { groups, asked } = group(questions, |question| core.owner(partition_of(question)));
    let (slots, replies): (Vec<_>, Vec<_>) = groups.iter().map(|_| reply()).unzip();
    let (own, others): (Vec<_>, Vec<_>) =
        groups.into_iter().zip(slots).partition(|((owner, _), _)| *owner == core.id());
    for ((owner, questions), slot) in others.into_iter().chain(own) {
        core.deliver(owner, envelope(questions, slot)).await;
    }
    Scattered { asked, replies }
}

impl<A: Send> Scattered<A> {
    /// The answers in the order of the questions; `None` where the core has gone.
    pub async fn gather(self) -> Vec<Option<A>> {
        let mut answers = Vec::with_capacity(self.replies.len());
        for reply in self.replies {
            answers.push(reply.await.unwrap_or_default().into_iter());
        }
        self.asked.into_iter().map(|core| answers[core].next()).collect()
    }
}

/// Questions by the core that is asked.
struct Grouped<Q> {
    groups: Vec<(CoreId, Vec<Q>)>,
    /// For each question, in the order they came: the place of its group.
    asked: Vec<usize>,
}

fn group<Q>(questions: impl IntoIterator<Item = Q>, owner: impl Fn(&Q) -> CoreId) -> Grouped<Q> {
    let mut grouped = Grouped { groups: Vec::new(), asked: Vec::new() };
    let mut places: BTreeMap<CoreId, usize> = BTreeMap::new();
    for question in questions {
        let owner = owner(&question);
        let place = *places.entry(owner).or_insert_with(|| {
            grouped.groups.push((owner, Vec::new()));
            grouped.groups.len() - 1
        });
        grouped.groups[place].1.push(question);
        grouped.asked.push(place);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::block_on;

    #[test]
    fn answers_come_back_in_the_order_of_the_questions() {
        let grouped = group(0..6, |question| CoreId(5 - question % 3));
        let cores: Vec<_> = grouped.groups.iter().map(|(core, _)| core.0).collect();
        assert_eq!(cores, [5, 4, 3], "one group for each core");
        let mut replies = Vec::new();
        for (_, questions) in grouped.groups {
            let (slot, answers) = reply();
            slot.fill(questions.into_iter().map(|question| question * 10).collect()).expect("it is awaited");
            replies.push(answers);
        }
        let gathered = block_on(Scattered { asked: grouped.asked, replies }.gather());
        assert_eq!(gathered, [0, 10, 20, 30, 40, 50].map(Some));
    }

    #[test]
    fn a_core_that_has_gone_answers_nothing() {
        let (gone, first) = reply::<Vec<i32>>();
        let (slot, second) = reply();
        drop(gone);
        slot.fill(vec![7]).expect("it is awaited");
        let gathered = block_on(Scattered { asked: vec![0, 1], replies: vec![first, second] }.gather());
        assert_eq!(gathered, [None, Some(7)]);
    }
}
