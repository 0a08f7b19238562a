//! The word that the server of a core stops, for its connections.

use std::cell::Cell;

use tarn_runtime::channel::LocalNotify;

/// Said once, and heard by all, also by who asks later.
#[derive(Default)]
pub(crate) struct Stopping {
    is_said: Cell<bool>,
    news: LocalNotify,
}

impl Stopping {
    pub(crate) fn say(&self) {
        self.is_said.set(true);
        self.news.notify_all();
    }

    pub(crate) fn is_said(&self) -> bool {
        self.is_said.get()
    }

    /// Waits until it is said.
    pub(crate) async fn said(&self) {
        let news = self.news.wait();
        if !self.is_said() {
            news.await;
        }
    }
}
