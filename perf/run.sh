#!/usr/bin/env bash
# Measurements, side by side. They are compared within one run, never timed in a test. See usage below.
# What this starts it also ends; what it writes it removes, but for a --seed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
kit=${TARN_KIT:-$PWD/target/kit}
target=${CARGO_TARGET_DIR:-$PWD/target}

usage() {
    cat <<'USAGE'
Usage: perf/run.sh mirror [--records N | --gb GB] [--partitions N] [--rounds N] [--peers LIST] [--seed DIR]
                          [--loop-response-bytes N] [--json]
       perf/run.sh lag    [--rates LIST] [--seconds N] [--rounds N] [--peers LIST] [--json]
       perf/run.sh failover | restart [--topics N] [--partitions N] [--source kafka|tarn] [--rounds N] [--json]
       perf/run.sh partitions [--topics N] [--partitions N] [--rounds N] [--json]
       perf/run.sh produce [--records-mb N] [--rounds N] [--peers LIST] [--acks LIST] [--codec LIST] [--warm-mb N]
                           [--record-bytes N] [--batch-bytes N] [--connections N] [--partitions N] [--json]
       perf/run.sh produce --small, and those above
       perf/run.sh consume [--consumers LIST] [--read-mb N] [--response-bytes N] [--sessions], and those of produce
                           but --acks and --warm-mb
       perf/run.sh tail    [--consumers LIST] [--mb-per-second LIST] [--seconds N] [--rounds N] [--peers LIST] [--json]
       perf/run.sh latency [--percent N | --rate N] [--seconds N] [--consumers N] [--acks ACKS] [--rounds N] [--json]
       perf/run.sh flush   [--policies LIST] [--producers LIST] [--seconds N] [--rounds N] [--json]

  mirror  copies a backlog of 1 KiB records from one Apache Kafka 4.4, in turn by Tarn, by MirrorMaker 2 (4.3.1,
          tuned) into another Kafka 4.4, and by a loop that only receives, checks CRCs and writes. Prints MB/s
          and CPU-seconds per GB of the destination's processes, and their ratios. About 10 minutes.
  lag     from an append at the source to a default consumer (librdkafka) at the destination: Tarn,
          MirrorMaker 2, and the source alone. Prints milliseconds. About 20 minutes.
  failover  the source of many mirrored partitions is killed: milliseconds from the failover to the first write
          that each of them takes. About 5 minutes.
  restart a Tarn with many mirrored partitions at rest is stopped, and killed, and started: seconds to its end,
          to the first answer, to all partitions MIRRORING, and what the source says meanwhile. About 5 minutes.
  partitions  very many empty partitions on one Tarn (20,000 by default): bytes of memory for each, seconds of a
          clean stop, of a start after it and of one after SIGKILL, milliseconds of answers about all. About 5 minutes.
  produce  clients with five requests under way fill a topic: Tarn, an Apache Kafka 4.4, and a loop that only
          receives, checks CRCs and writes. Prints MB/s, CPU-seconds of the server per GB, requests per
          CPU-second, and their ratios. About 5 minutes. With --small each batch is one value of 100 bytes.
  consume  clients read a topic that is in memory: the same two, and a loop that sends a file with sendfile.
          About 3 minutes.
  tail    clients read the end of a topic that others write to at a fixed rate: the same three. Prints CPU-seconds
          of the server per GB read, and which of them are the consumers'. About 5 minutes.
  latency from the moment when a batch is due to a consumer that has it, at 20 % of what an Apache Kafka 4.4 can do
          at most: Tarn and this Kafka. Prints milliseconds. About 6 minutes.
  flush   appends that are flushed before they are acknowledged, against a loop that writes the same bytes and calls
          fdatasync. Prints appends and syncs a second. About 6 minutes.

Builds Tarn, and installs what is missing where it may, or says how. TARN_BIN names a tarn that is built
already, TARN_KIT another directory for jars. Each option: perf/run.sh mirror --help.
Nothing else should run on the machine; "others' cores" says how much did.
USAGE
}

case ${1:-} in
mirror | lag | failover | restart | partitions | produce | consume | tail | latency | flush) ;;
-h | --help)
    usage
    exit 0
    ;;
*)
    usage >&2
    exit 2
    ;;
esac
run=$1
shift

command -v cargo > /dev/null || {
    echo "perf/run.sh: cargo is missing; install Rust 1.95 or newer with rustup" >&2
    exit 1
}
cargo build --release -q -p tarn-perf
for argument in "$@"; do
    case $argument in
    -h | --help) exec "$target/release/tarn-perf" "$run" --help ;;
    esac
done
{
    if [ -z "${TARN_BIN:-}" ]; then cargo build --release -q -p tarn; fi
    bash tests/needs.sh packages
    case $run in
    partitions | flush) ;;
    failover | restart | produce | consume | tail | latency) bash perf/prepare.sh ;;
    *) bash perf/prepare.sh mirrormaker ;;
    esac
} >&2
options=(--root "$PWD" --kit "$kit" --tarn "${TARN_BIN:-$target/release/tarn}")
if [ "$run" = lag ]; then
    bash tests/needs.sh clients >&2
    options+=(--python "$kit/venv/bin/python")
fi

# In the tree's own target directory: a temporary one may be in memory.
work=$(mktemp -d "$target/perf.XXXXXX")
# After a failure the logs stay, without the data.
clean_up() {
    local status=$?
    trap - EXIT INT TERM
    if [ "$status" -eq 1 ]; then
        find "$work" "(" -name data -o -name copied ")" -prune -exec rm -rf -- {} +
        echo "perf/run.sh: the logs are in $work" >&2
    else
        rm -rf -- "$work"
    fi
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
"$target/release/tarn-perf" "$run" "${options[@]}" --work "$work" "$@"
