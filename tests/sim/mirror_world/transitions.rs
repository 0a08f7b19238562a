//! The names of what is counted: each state after each other, as it is written down and as it is shown.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use tarn_mirror::state::{MirrorState, STATES};

type Names = BTreeMap<(Option<MirrorState>, MirrorState), &'static str>;

/// A state is written after another, or after none.
pub(super) fn written(from: Option<MirrorState>, to: MirrorState) -> &'static str {
    static NAMES: OnceLock<Names> = OnceLock::new();
    name(NAMES.get_or_init(|| names("written")), from, to)
}

/// A state is shown after another.
pub(super) fn shown(from: MirrorState, to: MirrorState) -> &'static str {
    static NAMES: OnceLock<Names> = OnceLock::new();
    name(NAMES.get_or_init(|| names("shown")), Some(from), to)
}

/// Every pair of states that may be written, which has to happen.
pub(super) fn expected() -> Vec<&'static str> {
    let from = [None].into_iter().chain(STATES.map(Some));
    let pairs = from.flat_map(|from| STATES.map(|to| (from, to)));
    let may_happen = |&(from, to): &(Option<MirrorState>, MirrorState)| {
        to.may_follow(from) && from != Some(to) && !is_excluded(from, to)
    };
    pairs.filter(may_happen).map(|(from, to)| written(from, to)).collect()
}

/// What is allowed and never happens.
fn is_excluded(from: Option<MirrorState>, to: MirrorState) -> bool {
    use MirrorState::{EpochFencing, Failed, Stopping, UleRecovery};
    // They are shown, and never written: a leader that raises its epoch or cuts its log begins that again wherever
    // it is found, and needs no record of it.
    let is_only_shown = |state| matches!(state, EpochFencing | UleRecovery);
    // A stop asks nothing of the source, and waits for everything else.
    let is_failed_stop = from == Some(Stopping) && to == Failed;
    is_only_shown(to) || from.is_some_and(is_only_shown) || is_failed_stop
}

fn name(names: &Names, from: Option<MirrorState>, to: MirrorState) -> &'static str {
    names.get(&(from, to)).copied().unwrap_or("a state that has no name")
}

/// They live as long as the process, and there are few.
fn names(how: &str) -> Names {
    let from = [None].into_iter().chain(STATES.map(Some));
    let pairs = from.flat_map(|from| STATES.map(|to| (from, to)));
    let named = |(from, to): (Option<MirrorState>, MirrorState)| {
        let name = format!("{how}: {} -> {to}", from.map_or("none", MirrorState::name));
        let name: &'static str = Box::leak(name.into_boxed_str());
        ((from, to), name)
    };
    pairs.map(named).collect()
}
