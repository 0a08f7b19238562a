//! What the cleaner's threads and the cores share: what is configured, the rate, the numbers, and the stop.
//!
//! A core takes the lock only to say that something is to end, or is configured otherwise: for a moment.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tarn_image::effective::cleaner::CleanerConfig;
use tarn_log::Spent;

use super::numbers::CleanerNumbers;
use super::throttle::Throttle;

/// See the module.
#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
    moved: Condvar,
    numbers: CleanerNumbers,
}

#[derive(Debug)]
struct State {
    config: CleanerConfig,
    throttle: Throttle,
    is_stopped: bool,
}

/// Says, from the core that has the log, that a round is not wanted any more.
#[derive(Clone, Debug, Default)]
pub(super) struct Unwanted(Arc<AtomicBool>);

impl Unwanted {
    fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl State {
    fn goes_on(&self, unwanted: &Unwanted) -> ControlFlow<()> {
        match self.is_stopped || unwanted.is_raised() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

impl Shared {
    /// A cleaner that is configured so, and whose threads do not run yet.
    pub fn new(config: CleanerConfig) -> Shared {
        let throttle = Throttle::new(Instant::now());
        let state = Mutex::new(State { config, throttle, is_stopped: false });
        Shared { state, moved: Condvar::new(), numbers: CleanerNumbers::default() }
    }

    /// What is known in numbers.
    pub fn numbers(&self) -> &CleanerNumbers {
        &self.numbers
    }

    /// What is configured now.
    pub fn config(&self) -> CleanerConfig {
        self.state().config
    }

    /// Puts another configuration in force, from the next piece of a round on.
    pub(super) fn configure(&self, config: CleanerConfig) {
        let mut state = self.state();
        if state.config != config {
            state.config = config;
            self.moved.notify_all();
        }
    }

    /// Ends every round, and the threads.
    pub(super) fn stop(&self) {
        self.state().is_stopped = true;
        self.moved.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state().is_stopped
    }

    /// Has a round end at its next piece, also where it waits for its share of the rate.
    pub(super) fn end(&self, unwanted: &Unwanted) {
        unwanted.0.store(true, Ordering::Release);
        // Who waits looks before it sleeps, and holds the lock from then until it does.
        drop(self.state());
        self.moved.notify_all();
    }

    /// Waits where nothing is to be done, as long as nothing is configured otherwise.
    pub(super) fn back_off(&self, pause: Duration) {
        let state = self.state();
        let config = state.config;
        let waits = |state: &mut State| !state.is_stopped && state.config == config;
        drop(self.moved.wait_timeout_while(state, pause, waits));
    }

    /// A piece of a round is done: waits where all threads together were too fast, and says whether to go on.
    pub(super) fn paid(&self, spent: Spent, unwanted: &Unwanted) -> ControlFlow<()> {
        self.numbers.spent(spent.read, spent.written);
        let mut state = self.state();
        let rate = state.config.bytes_per_second;
        let wait = state.throttle.spend(spent.read + spent.written, rate, Instant::now());
        if !wait.is_zero() {
            let waits = |state: &mut State| {
                !state.is_stopped && !unwanted.is_raised() && state.config.bytes_per_second == rate
            };
            let waited = self.moved.wait_timeout_while(state, wait, waits);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.goes_on(unwanted)
    }

    /// Waits a little for what keeps a round; says whether to go on.
    pub(super) fn pause(&self, pause: Duration, unwanted: &Unwanted) -> ControlFlow<()> {
        let waits = |state: &mut State| state.goes_on(unwanted).is_continue();
        let waited = self.moved.wait_timeout_while(self.state(), pause, waits);
        waited.unwrap_or_else(PoisonError::into_inner).0.goes_on(unwanted)
    }

    /// A panic while the lock was held leaves a state that is whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that take a day.
    const MANY: Spent = Spent { read: 86_400, written: 0 };

    #[test]
    fn what_waits_for_its_share_is_ended_at_once() {
        let ends: [fn(&Shared, &Unwanted); 2] = [Shared::end, |shared, _| shared.stop()];
        for end in ends {
            let (shared, unwanted) = (Arc::new(slow()), Unwanted::default());
            let waiting = {
                let (shared, unwanted) = (shared.clone(), unwanted.clone());
                std::thread::spawn(move || shared.paid(MANY, &unwanted))
            };
            end(&shared, &unwanted);
            assert_eq!(waiting.join().unwrap(), ControlFlow::Break(()));
        }
    }

    #[test]
    fn a_rate_that_is_raised_is_in_force_at_once() {
        let shared = Arc::new(slow());
        let waiting = {
            let shared = shared.clone();
            std::thread::spawn(move || shared.paid(MANY, &Unwanted::default()))
        };
        let config = CleanerConfig { bytes_per_second: f64::MAX, ..shared.config() };
        shared.configure(config);
        assert_eq!(waiting.join().unwrap(), ControlFlow::Continue(()));
        assert_eq!(shared.numbers().bytes().0, MANY.read);
    }

    fn slow() -> Shared {
        let config =
            CleanerConfig { threads: 1, dedupe_buffer_bytes: 1 << 20, bytes_per_second: 1.0, backoff_ms: 0 };
        Shared::new(config)
    }
}
