#!/usr/bin/env bash
# Installs what tests/run.sh and perf/run.sh need beyond Rust: `packages`, Debian packages for the commands
# that are missing, where that may be done, or says how; `clients`, a Python with confluent-kafka (a recent
# librdkafka) and kafka-python in target/kit/venv, and a reader built on franz-go in target/kit/franz-go (TARN_KIT
# names another directory for target/kit). Does nothing where all is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
kit=${TARN_KIT:-$PWD/target/kit}
librdkafka_version=2.16.1
kafka_python_version=3.0.12
go_version=1.25

install_packages() {
    local wanted=() command package
    for command in java:openjdk-17-jdk-headless javac:openjdk-17-jdk-headless jar:openjdk-17-jdk-headless \
        mvn:maven kcat:kcat python3:python3 cc:build-essential setpriv:util-linux; do
        package=${command#*:}
        if ! command -v "${command%%:*}" > /dev/null; then wanted+=("$package"); fi
    done
    if ! python3 -c 'import ensurepip, venv' 2> /dev/null; then wanted+=(python3-venv); fi
    if [ ${#wanted[@]} -eq 0 ]; then return 0; fi
    # Debian 13 has no JDK 17; any from 17 on will do.
    if [ -z "$(apt-cache madison openjdk-17-jdk-headless 2> /dev/null)" ]; then
        wanted=("${wanted[@]/openjdk-17-jdk-headless/default-jdk-headless}")
    fi
    mapfile -t wanted < <(printf '%s\n' "${wanted[@]}" | sort -u)
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get > /dev/null; then
        echo "missing; install with: sudo apt-get install -y ${wanted[*]}" >&2
        return 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q
    apt-get install -y -q --no-install-recommends "${wanted[@]}"
}

install_python_clients() {
    local wanted=("confluent-kafka==$librdkafka_version" "kafka-python==$kafka_python_version")
    if [ "$(cat "$kit/venv/stamp" 2> /dev/null)" = "${wanted[*]}" ]; then return 0; fi
    rm -rf "$kit/venv"
    mkdir -p "$kit"
    python3 -m venv "$kit/venv"
    "$kit/venv/bin/python" -m pip install -q --disable-pip-version-check "${wanted[@]}"
    echo "${wanted[*]}" > "$kit/venv/stamp"
}

# Go is not installed: the one that Debian 12 has is too old.
build_franz_go() {
    local stamp
    if ! command -v go > /dev/null; then
        echo "missing: Go $go_version or newer" >&2
        return 1
    fi
    stamp=$(cat tests/clients/franz-go/* <(go version) | sha256sum)
    if [ "$(cat "$kit/franz-go/stamp" 2> /dev/null)" = "$stamp" ]; then return 0; fi
    mkdir -p "$kit/franz-go"
    go -C tests/clients/franz-go build -o "$kit/franz-go/read_back" .
    echo "$stamp" > "$kit/franz-go/stamp"
}

for need in "$@"; do
    case $need in
    packages) install_packages ;;
    clients)
        install_python_clients
        build_franz_go
        ;;
    *)
        echo "tests/needs.sh: $need is neither packages nor clients" >&2
        exit 2
        ;;
    esac
done
