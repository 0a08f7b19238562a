//! The cores that a node mirrors on, as its manager sees them: whoever hosts it starts what it is handed.

use std::pin::Pin;

/// A future that stays on its core.
pub type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// What the host runs on a core, with that core's own view of the cluster.
pub type CoreTask<C> = Box<dyn FnOnce(C) -> LocalFuture + Send>;

/// The cores that lanes run on.
pub trait MirrorCores<C>: 'static {
    /// How many there are, at least 1.
    fn count(&self) -> usize;

    /// Starts a task on a core, numbered from 0. Never waits; a task that cannot be started is dropped.
    fn spawn(&self, core: usize, task: CoreTask<C>);
}
