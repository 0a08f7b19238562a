#!/usr/bin/env bash
# Every test of Tarn. See usage below. Installs what it needs where it may, otherwise says how; never asks.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit 1
cd "$root" || exit 1
kit=${TARN_KIT:-$root/target/kit}
filter=
long=no
# The tarn to test, where TARN_BIN names none: the one with the checks of overflow and of what we assert.
profile=dev
target=${CARGO_TARGET_DIR:-$root/target}
# Printed at the end: what each part was, its minutes, how it ended.
parts=()
failed=0
passed=0
# The tests that need real Kafka, other clients, or a `tarn` to break.
integration=(kafka faults clients)

usage() {
    cat <<'USAGE'
Usage: tests/run.sh [FILTER] [--long] [--release] [-- ARGUMENTS]

Without a FILTER: formatting, lints, the tests beside the code, the simulation, every decoder on hostile input,
the tidiness of the tree, and the tests against real Apache Kafka (from Maven), other clients, and faults. With
one: the tests whose name contains it, `kafka::mirror` or `a_deposed_leader`, say; the first part may be a test
binary (kafka, faults, clients, sim, fuzz, tidy) or a crate (tarn-log).

  --long    also the tests that take long (those marked as ignored)
  --release against the optimised tarn, as it is shipped, instead of the one that checks overflow and assertions
  --help    this text
  ARGUMENTS for the test binaries, as `--nocapture`

TARN_BIN names a tarn that is built already, TARN_KIT another directory for jars and data sets, SEED a seed,
COUNT how many inputs each decoder gets, TARGET one decoder, INPUT a file with one input for it.
USAGE
}

say() { printf '\n== %s\n' "$*"; }

fail() {
    printf 'tests/run.sh: %s\n' "$*" >&2
    exit 1
}

arguments=()
while [ $# -gt 0 ]; do
    case $1 in
    --long) long=yes ;;
    --release) profile=release ;;
    --help | -h)
        usage
        exit 0
        ;;
    --)
        shift
        arguments=("$@")
        break
        ;;
    -*) fail "unknown option $1 (see --help)" ;;
    *)
        [ -z "$filter" ] || fail "one FILTER only (see --help)"
        filter=$1
        ;;
    esac
    shift
done

# Runs a part, and notes its minutes and its end. Counts what cargo's test binaries report.
part() {
    local name=$1 log begun took
    shift
    say "$name"
    log=$(mktemp)
    begun=$SECONDS
    "$@" < /dev/null 2>&1 | tee "$log"
    local status=${PIPESTATUS[0]}
    took=$(awk "BEGIN { printf \"%.1f\", ($SECONDS - $begun) / 60 }")
    local of_this
    of_this=$(awk '/^test result:/ { for (i = 2; i <= NF; i++) {
        if ($i ~ /^passed/) p += $(i - 1); if ($i ~ /^failed/) f += $(i - 1) } } END { print p + 0, f + 0 }' "$log")
    passed=$((passed + ${of_this% *}))
    failed=$((failed + ${of_this#* }))
    rm -f "$log"
    if [ "$status" -eq 0 ]; then
        parts+=("$(printf '%6s min  ok      %s' "$took" "$name")")
    else
        parts+=("$(printf '%6s min  FAILED  %s' "$took" "$name")")
        if [ "${of_this#* }" -eq 0 ]; then failed=$((failed + 1)); fi
    fi
    return "$status"
}

finish() {
    say "minutes of each part"
    printf '%s\n' "${parts[@]}"
    printf '%6s min  in all\n\n' "$(awk "BEGIN { printf \"%.1f\", $SECONDS / 60 }")"
    printf '%d passed, %d failed\n' "$passed" "$failed"
    [ "$failed" -eq 0 ]
    exit
}

cargo_test() { cargo test -q "$@"; }

build_tarn() {
    if [ -n "${TARN_BIN:-}" ]; then return 0; fi
    cargo build --profile "$profile" -p tarn
}

build() {
    build_tarn &&
        cargo test -q --workspace --no-run &&
        cargo test -q -p tarn-tests --no-run "${integration[@]/#/--test=}"
}

lint() { cargo clippy -q --workspace --all-targets "${integration[@]/#/--test=}" -- -D warnings; }

libtest() {
    local arguments_of_libtest=(${arguments[@]+"${arguments[@]}"})
    if [ "$long" = yes ]; then arguments_of_libtest+=(--include-ignored); fi
    # Without an argument printf would print one that is empty, and that names every test.
    if [ ${#arguments_of_libtest[@]} -gt 0 ]; then printf '%s\0' "${arguments_of_libtest[@]}"; fi
}
mapfile -d '' -t for_libtest < <(libtest)

tarn_bin() {
    case $profile in
    dev) echo "$target/debug/tarn" ;;
    *) echo "$target/$profile/tarn" ;;
    esac
}

# Each integration test binary, with the tests whose name contains $1.
integration_tests() {
    local binary status=0
    export TARN_BIN=${TARN_BIN:-$(tarn_bin)}
    # Some tests need what only a tarn with assertions has.
    export TARN_PROFILE=$profile
    for binary in "${binaries[@]}"; do
        part "$binary: against real programs" cargo_test -p tarn-tests --test "$binary" -- ${1:+"$1"} \
            ${for_libtest[@]+"${for_libtest[@]}"} || status=1
    done
    return $status
}

command -v cargo > /dev/null || fail "cargo is missing; install Rust 1.95 or newer with rustup"
ulimit -n "$(ulimit -H -n)" 2> /dev/null || true

binaries=("${integration[@]}")
inside=$filter
case ${filter%%::*} in
kafka | faults | clients)
    binaries=("${filter%%::*}")
    inside=${filter#"${binaries[0]}"}
    inside=${inside#::}
    ;;
sim | fuzz | tidy)
    binary=${filter%%::*}
    inside=${filter#"$binary"}
    inside=${inside#::}
    part "$binary" cargo_test -p tarn-tests --test "$binary" -- ${inside:+"$inside"} \
        ${for_libtest[@]+"${for_libtest[@]}"}
    finish
    ;;
tarn | tarn-*)
    crate=${filter%%::*}
    inside=${filter#"$crate"}
    inside=${inside#::}
    part "$crate" cargo_test -p "$crate" -- ${inside:+"$inside"} ${for_libtest[@]+"${for_libtest[@]}"}
    finish
    ;;
esac

part "what the tests need" bash tests/needs.sh packages || finish
if [ -z "$filter" ]; then
    part "formatting" cargo fmt --all --check
    part "build" build || finish
    part "lints" lint
    part "tests beside the code, simulation, hostile input, tidiness" cargo_test --workspace -- \
        ${for_libtest[@]+"${for_libtest[@]}"}
else
    part "build" build_tarn || finish
    if [ "${#binaries[@]}" -gt 1 ]; then
        part "tests beside the code, simulation, hostile input, tidiness" cargo_test --workspace -- "$inside" \
            ${for_libtest[@]+"${for_libtest[@]}"}
    fi
fi
part "Apache Kafka's jars and class archives" bash tests/kafka/prepare.sh || finish
part "clients in Python and Go" bash tests/needs.sh clients || finish
integration_tests "$inside"
finish
