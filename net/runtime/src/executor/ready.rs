//! The tasks of a core that can run, and whose turn it is.
//!
//! Each queue has a share of the core's time. The queue whose turn comes next is the one that had the least time for its
//! share; one that was empty does not catch up on what it did not ask for. Within a queue tasks run in the order in which
//! they were woken.
//!
//! Invariants:
//! * a queue with tasks has its turn, however small its share;
//! * one that gave its turn away has the next only where no other queue has a task.

use std::collections::VecDeque;
use std::time::Duration;

use async_task::Runnable;

use crate::queues::Queue;

const QUEUES: usize = 3;

/// See the module.
#[derive(Debug)]
pub(super) struct Ready {
    queues: [ReadyQueue; QUEUES],
    /// How much the queue had that was chosen last, of its share: who comes late begins there.
    floor: u64,
    passed: Option<Queue>,
}

#[derive(Debug)]
struct ReadyQueue {
    tasks: VecDeque<Runnable>,
    shares: u64,
    /// Its time in nanoseconds, divided by its share.
    had: u64,
}

impl Ready {
    /// Nothing can run.
    pub(super) fn new() -> Ready {
        let queue = |queue: Queue| ReadyQueue { tasks: VecDeque::new(), shares: queue.shares(), had: 0 };
        Ready { queues: Queue::ALL.map(queue), floor: 0, passed: None }
    }

    /// A task was woken.
    pub(super) fn push(&mut self, queue: Queue, task: Runnable) {
        let floor = self.floor;
        let queue = &mut self.queues[queue as usize];
        if queue.tasks.is_empty() {
            queue.had = queue.had.max(floor);
        }
        queue.tasks.push_back(task);
    }

    /// Whose turn it is; `None` where nothing can run.
    pub(super) fn choose(&mut self) -> Option<Queue> {
        let passed = self.passed.take();
        let waiting = Queue::ALL.into_iter().filter(|queue| !self.queues[*queue as usize].tasks.is_empty());
        let chosen =
            waiting.min_by_key(|queue| (passed == Some(*queue), self.queues[*queue as usize].had))?;
        self.floor = self.queues[chosen as usize].had;
        Some(chosen)
    }

    /// The next task of a queue.
    pub(super) fn pop(&mut self, queue: Queue) -> Option<Runnable> {
        self.queues[queue as usize].tasks.pop_front()
    }

    /// Any task.
    pub(super) fn pop_any(&mut self) -> Option<Runnable> {
        self.queues.iter_mut().find_map(|queue| queue.tasks.pop_front())
    }

    /// A queue had a turn of this length.
    pub(super) fn had(&mut self, queue: Queue, time: Duration) {
        let queue = &mut self.queues[queue as usize];
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        queue.had = queue.had.saturating_add(nanoseconds / queue.shares);
    }

    /// A task of this queue lets others go first.
    pub(super) fn pass(&mut self, queue: Queue) {
        self.passed = Some(queue);
    }

    /// True where nothing can run.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.tasks.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_millis(1);

    /// Who has so many turns where these queues always have a task.
    fn turns(ready: &mut Ready, asking: &[Queue], turns: usize) -> Vec<usize> {
        let mut had = vec![0; QUEUES];
        for _ in 0..turns {
            for queue in asking {
                if ready.queues[*queue as usize].tasks.is_empty() {
                    ready.push(*queue, task());
                }
            }
            let chosen = ready.choose().expect("there are tasks");
            drop(ready.pop(chosen));
            ready.had(chosen, TURN);
            had[chosen as usize] += 1;
        }
        had
    }

    /// A task that is never run.
    fn task() -> Runnable {
        let (runnable, task) = async_task::spawn(async {}, |_| {});
        task.detach();
        runnable
    }

    #[test]
    fn queues_that_always_ask_have_turns_by_their_shares() {
        let had = turns(&mut Ready::new(), &Queue::ALL, 1600);
        assert!((995..=1005).contains(&had[Queue::Network as usize]), "{had:?}");
        assert!((495..=505).contains(&had[Queue::Mirror as usize]), "{had:?}");
        assert!((95..=105).contains(&had[Queue::Background as usize]), "{had:?}");
    }

    #[test]
    fn a_queue_that_was_empty_does_not_catch_up() {
        let mut ready = Ready::new();
        assert_eq!(turns(&mut ready, &[Queue::Background], 1000)[Queue::Background as usize], 1000);
        let had = turns(&mut ready, &[Queue::Network, Queue::Background], 110);
        assert!((8..=12).contains(&had[Queue::Background as usize]), "{had:?}");
    }

    #[test]
    fn who_lets_others_go_first_has_the_next_turn_only_alone() {
        let mut ready = Ready::new();
        ready.push(Queue::Network, task());
        ready.push(Queue::Background, task());
        ready.had(Queue::Background, TURN);
        ready.pass(Queue::Network);
        assert_eq!(ready.choose(), Some(Queue::Background));
        assert_eq!(ready.choose(), Some(Queue::Network), "once");
        drop(ready.pop(Queue::Background));
        ready.pass(Queue::Network);
        assert_eq!(ready.choose(), Some(Queue::Network));
    }
}
