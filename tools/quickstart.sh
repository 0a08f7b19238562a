#!/usr/bin/env bash
# Builds Tarn and does its main job: mirrors the topics of a source cluster and proves that the copy is
# identical. See usage below. What this starts it also ends, by process id; what it writes it removes.
set -u -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit 1
source_address=
topics=
check=no
port=19292
source_port=19192
records_per_codec=20000
codecs="none gzip snappy lz4 zstd"
mirror=quickstart

usage() {
    cat <<'USAGE'
Usage: tools/quickstart.sh [--source HOST:PORT] [--topics REGEX] [--check] [--port N] [--source-port N]

Builds Tarn, starts a source (a second Tarn) and a destination, writes 100,000 keyed records into topics of
each codec, mirrors them, and compares both sides batch by batch. Then both run until Ctrl-C.

  --source HOST:PORT  mirror this Kafka cluster instead of a second Tarn; nothing is written to it
  --topics REGEX      which of its topics; default: all of them ('.*')
  --check             verify, stop, and exit with 0 (identical) or 1
  --port N            the destination listens on N, its controller on N+1; default 19292
  --source-port N     the same for the second Tarn; default 19192
  --help              this text

TARN_BIN names a tarn that is built already.
USAGE
}

say() { printf '\n== %s\n' "$*"; }

fail() {
    printf 'quickstart: %s\n' "$*" >&2
    exit 1
}

misused() {
    printf 'quickstart: %s\n\n' "$*" >&2
    usage >&2
    exit 2
}

parse_arguments() {
    while [ $# -gt 0 ]; do
        case $1 in
        --check) check=yes ;;
        --help | -h)
            usage
            exit 0
            ;;
        --source | --topics | --port | --source-port)
            [ $# -ge 2 ] || misused "$1 needs a value"
            case $1 in
            --source) source_address=$2 ;;
            --topics) topics=$2 ;;
            --port) port=$2 ;;
            --source-port) source_port=$2 ;;
            esac
            shift
            ;;
        *) misused "unknown option $1" ;;
        esac
        shift
    done
    local number
    for number in "$port" "$source_port"; do
        case $number in
        '' | *[!0-9]*) misused "$number is no port" ;;
        esac
        [ "$number" -ge 1 ] && [ "$number" -le 65534 ] || misused "$number is no port between 1 and 65534"
    done
    local apart=$((port > source_port ? port - source_port : source_port - port))
    [ -n "$source_address" ] || [ "$apart" -ge 2 ] ||
        misused "--port $port and --source-port $source_port overlap: each node takes its port and the one above"
    [ -z "$topics" ] || [ -n "$source_address" ] || misused "--topics goes with --source"
}

# Rust is required. The C compiler for zstd and the linker is installed where that may be done.
need_tools() {
    if ! command -v cargo >/dev/null 2>&1; then
        fail "cargo is missing: install Rust 1.95 or newer as https://rustup.rs says, then run this again"
    fi
    command -v cc >/dev/null 2>&1 && return
    local install="apt-get install -y build-essential"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "Installing a C compiler: $install"
        apt-get update && DEBIAN_FRONTEND=noninteractive $install || fail "'$install' failed"
    elif command -v apt-get >/dev/null 2>&1; then
        fail "a C compiler is missing: run 'sudo $install', then run this again"
    else
        fail "a C compiler is missing: install gcc or clang so that 'cc' is found, then run this again"
    fi
}

build() {
    if [ -n "${TARN_BIN:-}" ]; then
        tarn=$TARN_BIN
        [ -x "$tarn" ] || fail "TARN_BIN=$tarn is no program"
        return
    fi
    need_tools
    say "Building Tarn (the first time takes minutes)"
    cargo build --release --manifest-path "$root/Cargo.toml" -p tarn || fail "the build failed, see above"
    tarn=${CARGO_TARGET_DIR:-$root/target}/release/tarn
}

# A port that somebody listens on already is named before anything starts.
need_free_port() {
    if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then
        fail "port $1 is taken: choose another with $2"
    fi
}

data=
pids=()

start_node() { # name, port: formats a directory, starts a node there and waits until it answers
    local name=$1 port=$2 directory=$data/$1 id
    mkdir -p "$directory" || fail "$directory cannot be made"
    id=$("$tarn" random-uuid) || fail "no cluster id"
    cat >"$directory/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
controller.listener.names=CONTROLLER
log.dirs=$directory/data
PROPERTIES
    "$tarn" format -t "$id" -c "$directory/server.properties" >"$directory/format.log" 2>&1 ||
        fail "formatting failed: $(tail -n 3 "$directory/format.log")"
    "$tarn" server "$directory/server.properties" >"$directory/server.log" 2>&1 &
    local pid=$!
    pids+=("$pid")
    "$tarn" await-ready --bootstrap-server "127.0.0.1:$port" --cluster-id "$id" --timeout 30 &
    local waiter=$!
    # Whichever ends first: a node that cannot start ends at once.
    if ! wait -n "$pid" "$waiter" || ! kill -0 "$pid" 2>/dev/null; then
        kill "$waiter" 2>/dev/null
        fail "the $name did not start: $(tail -n 5 "$directory/server.log")"
    fi
    printf 'The %s serves at 127.0.0.1:%s, its log is %s\n' "$name" "$port" "$directory/server.log"
}

# Ends what was started, newest first, and removes what was written.
clean_up() {
    local status=$? at
    trap - EXIT INT TERM
    for ((at = ${#pids[@]} - 1; at >= 0; at--)); do
        kill -TERM "${pids[at]}" 2>/dev/null
        wait "${pids[at]}" 2>/dev/null
    done
    [ -z "$data" ] || rm -rf -- "$data"
    exit "$status"
}

fill_source() {
    local codec
    say "Writing $((records_per_codec * 5)) keyed records, $records_per_codec with each codec: $codecs"
    for codec in $codecs; do
        "$tarn" topics create --bootstrap-server "$source_address" --topic "quickstart.$codec" --partitions 3 \
            >/dev/null || fail "quickstart.$codec could not be created"
        "$tarn" produce --bootstrap-server "$source_address" --topic "quickstart.$codec" --codec "$codec" \
            --count "$records_per_codec" || fail "quickstart.$codec could not be filled"
    done
}

mirror_source() {
    local destination=127.0.0.1:$port
    say "Mirroring '$topics' from $source_address to $destination"
    printf 'bootstrap.servers=%s\n' "$source_address" >"$data/mirror.properties"
    "$tarn" mirror create --bootstrap-server "$destination" --mirror "$mirror" \
        --mirror-config "$data/mirror.properties" || fail "the mirror could not be created"
    "$tarn" mirror start --bootstrap-server "$destination" --mirror "$mirror" --topics "$topics" --wait ||
        fail "the topics could not be mirrored"
    local found
    found=$("$tarn" topics list --exclude-internal --bootstrap-server "$destination") ||
        fail "the destination does not say what it mirrors"
    [ -n "$found" ] || fail "no topic of $source_address matches '$topics': nothing to mirror"
    say "Comparing both sides batch by batch"
    "$tarn" compare --source "$source_address" --destination "$destination" --topics "$topics" ||
        fail "the copy is not identical"
}

first_topic() {
    if [ "$source_address" = "127.0.0.1:$source_port" ]; then
        echo quickstart.zstd
    else
        "$tarn" topics list --exclude-internal --bootstrap-server "127.0.0.1:$port" | head -n 1 | cut -f 1
    fi
}

invite() {
    local at="--bootstrap-server 127.0.0.1:$port"
    say "Verified. Try next, in another terminal:"
    printf '  %s consume %s --topic %s --from-beginning --max-messages 5 --print partition,offset,key,value\n' \
        "$tarn" "$at" "$(first_topic)"
    printf '  %s mirror describe %s --mirror %s\n' "$tarn" "$at" "$mirror"
    printf '  %s mirror list %s\n' "$tarn" "$at"
    printf '\nRunning until Ctrl-C; then %s is removed.\n' "$data"
}

parse_arguments "$@"
build
need_free_port "$port" --port
need_free_port $((port + 1)) --port
data=$(mktemp -d "${TMPDIR:-/tmp}/tarn-quickstart.XXXXXX") || fail "no temporary directory"
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
say "Starting; all data goes to $data, which is removed at the end"
if [ -z "$source_address" ]; then
    need_free_port "$source_port" --source-port
    need_free_port $((source_port + 1)) --source-port
    start_node source "$source_port"
    source_address=127.0.0.1:$source_port
    topics='quickstart\..*'
    start_node destination "$port"
    fill_source
else
    topics=${topics:-.*}
    "$tarn" await-ready --bootstrap-server "$source_address" --timeout 10 ||
        fail "the source $source_address does not answer"
    start_node destination "$port"
fi
mirror_source
if [ "$check" = yes ]; then
    say "Verified."
    exit 0
fi
invite
trap 'exit 0' INT TERM
wait -n "${pids[@]}"
fail "a node has ended: $(tail -n 5 "$data"/*/server.log)"
