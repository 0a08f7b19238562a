//! Cluster mirroring (KIP-1279): pulling topics out of another cluster and keeping them as they are.
//!
//! The rules are sans-IO (`state`, `alignment`, `coordinator`, `lag`, `fetch::plan`, `sync`); around them
//! stand the drivers that own connections and timers (`link`, `fetch::lane`, `manager`). The crate reaches
//! its own cluster through one trait, `local_cluster`.

pub mod coordinator;
pub mod lag;
pub mod local_cluster;
pub mod reasons;
pub mod state;
