#!/usr/bin/env bash
# Measurements. They are compared within one run, never timed in a test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
    cat <<'USAGE'
Usage: perf/run.sh loop --source HOST:PORT --topic TOPIC --partitions N --into DIR
       perf/run.sh lag --source HOST:PORT --destination HOST:PORT --topic TOPIC [--rate N]

  loop   copies a topic as fast as one thread can (fetch, CRC-32C, write): the speed of light of a mirror
  lag    from an append at the source to a default consumer at the destination, in milliseconds;
         needs Python 3 with confluent-kafka

Each prints one line of JSON. Side-by-side runs against Apache Kafka and MirrorMaker 2 do not exist yet.
USAGE
}

case ${1:-} in
loop)
    shift
    cargo build --release -q -p tarn-perf
    exec target/release/tarn-perf loop "$@"
    ;;
lag)
    shift
    exec python3 perf/lag.py "$@"
    ;;
-h | --help)
    usage
    ;;
*)
    usage >&2
    exit 2
    ;;
esac
