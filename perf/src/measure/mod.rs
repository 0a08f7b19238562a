//! What runs cost, and what many of them say together.

pub(crate) mod arrival;
pub(crate) mod cpu;
pub(crate) mod goal;
pub(crate) mod percentiles;
pub(crate) mod quantity;
pub(crate) mod spread;
pub(crate) mod target;
pub(crate) mod writable;
