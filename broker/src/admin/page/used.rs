//! What a scrape tells of limits: how much there may be of something, and how much there is.

use tarn_metrics::Exposition;

use super::super::process::Process;
use super::super::scrape::Scraped;
use crate::limits;
use crate::metrics::{self, CoreMeasured};

/// The name of a limit, how much there may be, and how much there is.
type Pair = (&'static str, u64, u64);

pub(super) fn write(scraped: &Scraped<'_>, process: &Process, page: &mut Exposition) {
    let watched = scraped.watched;
    let mut pairs: Vec<Pair> = of_cores(scraped).into_iter().chain(of_node(scraped)).collect();
    let of_process =
        [("descriptors", process.max_fds, process.open_fds), ("memory_maps", process.max_maps, process.maps)];
    pairs.extend(of_process.into_iter().filter_map(|(name, limit, used)| Some((name, limit?, used?))));
    pairs.sort_unstable();
    let mut family = page.family(metrics::LIMIT);
    pairs.iter().for_each(|(name, limit, _)| family.series(&[name], *limit));
    let mut family = page.family(metrics::USED);
    pairs.iter().for_each(|(name, _, used)| family.series(&[name], *used));
    page.single(metrics::WAITING_FOR_MEMORY, watched.inbound.waiting());
    page.single(metrics::SEGMENTS_CLOSED, watched.descriptors.closed());
}

fn of_cores(scraped: &Scraped<'_>) -> [Pair; 5] {
    let (watched, cores) = (scraped.watched, scraped.cores.len());
    let sum = |number: fn(&CoreMeasured) -> usize| scraped.cores.iter().map(number).sum::<usize>();
    let pair = |name, limit: usize, used: usize| (name, limit as u64, used as u64);
    let disks = watched.node.log_dirs().dirs().len().min(tarn_runtime::limits::READ_DISKS_MAX);
    let read_threads = disks + tarn_runtime::limits::READ_THREADS_SHARED;
    [
        // Those beyond the limit wait.
        pair("cold_reads", cores * read_threads, sum(|core| core.reads)),
        pair(
            "fetch_session_partitions",
            cores * limits::FETCH_SESSION_PARTITIONS_PER_CORE,
            sum(|core| core.session_partitions),
        ),
        pair("fetch_sessions", watched.node.fetch_sessions_max(), sum(|core| core.sessions)),
        (
            "unflushed_bytes",
            limits::UNFLUSHED_BYTES,
            scraped.cores.iter().map(|core| core.unflushed_bytes).sum(),
        ),
        pair(
            "waiting_produce_requests",
            cores * limits::WAITING_PRODUCES_PER_CORE,
            sum(|core| core.waiting_produces),
        ),
    ]
}

fn of_node(scraped: &Scraped<'_>) -> [Pair; 8] {
    let (watched, node) = (scraped.watched, &scraped.watched.node);
    let connections = node.metrics().iter().map(|core| core.transport.connections_open()).sum();
    let max_connections = node.connection_rules().map_or(0, |rules| rules.max() as u64);
    let (mirrors_memory, reserved) = node.mirrors().map_or((0, 0), |manager| manager.fetch_memory());
    let fullest_mailbox = watched.peers.iter().map(|peer| peer.depth()).max().unwrap_or(0);
    let decompression = node.decompression();
    let pair = |name, limit: usize, used: usize| (name, limit as u64, used as u64);
    [
        pair("background_flushes", limits::BACKGROUND_FLUSHES, node.flusher().waiting()),
        ("connections", max_connections, connections),
        pair("decompression_bytes", decompression.usual().limit(), decompression.usual().in_use()),
        pair("decompressions_of_large_records", 1, usize::from(decompression.is_large_under_way())),
        pair("inbound_bytes", watched.inbound.limit(), watched.inbound.in_use()),
        pair("mailbox_envelopes_of_a_core", limits::MAILBOX_ENVELOPES, fullest_mailbox),
        pair("mirror_fetch_bytes", mirrors_memory, reserved),
        pair("segment_descriptors", watched.descriptors.limit(), watched.descriptors.in_use()),
    ]
}
