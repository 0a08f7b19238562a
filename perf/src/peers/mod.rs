//! What Tarn is measured against: a loop that does only what every mirror must do.

pub(crate) mod copy_loop;
