//! Cluster mirroring (KIP-1279): pulling topics out of another cluster and keeping them as they are.
//!
//! The rules are sans-IO (`state`, `partition`, `alignment`, `common_point`, `divergence`, `consent`, `truncation`,
//! `existing`, `coordinator`, `gaps`, `known`, `lag`, `outage`, `fetch::plan`, `sync`); around them stand the drivers
//! that own connections and timers (`link`, `fetch::lane`, `manager`).
//! The crate reaches its own cluster through one trait, `local_cluster`.

pub mod alignment;
pub mod backoff;
pub mod common_point;
pub mod consent;
pub mod coordinator;
pub mod crash_points;
pub mod divergence;
pub mod existing;
pub mod fetch;
pub mod gaps;
pub mod known;
pub mod lag;
pub mod limits;
pub mod link;
pub mod local_cluster;
pub mod manager;
pub mod metrics;
pub mod outage;
pub mod partition;
pub mod post;
pub mod reasons;
pub mod source;
pub mod state;
pub mod sync;
pub mod truncation;
