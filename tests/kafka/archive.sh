#!/usr/bin/env bash
# Makes DIRECTORY/server.jsa and DIRECTORY/tools.jsa: the classes that a broker and the tools load, of the
# class path in DIRECTORY/classpath. Starts a broker for that, on ports drawn by chance: it
# fails where one is taken. For prepare.sh.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
made=$1
class_path=$(cat "$made/classpath")
work=$(mktemp -d)
broker=
cleanup() {
    if [[ -n $broker ]]; then kill -KILL "$broker" 2>/dev/null || true; fi
    rm -rf "$work"
}
trap cleanup EXIT
java_short=(java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx256m)
port=$((21000 + RANDOM % 5000 * 2))
cat > "$work/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
controller.listener.names=CONTROLLER
log.dirs=$work/data
offsets.topic.replication.factor=1
log.cleaner.dedupe.buffer.size=2097152
broker.session.timeout.ms=60000
PROPERTIES
"${java_short[@]}" "-Dlog4j2.configurationFile=$here/log4j2-server.properties" -cp "$class_path" \
    kafka.tools.StorageTool format -t MkU3OEVBNTcwNTJENDM2Qk -c "$work/server.properties" > "$work/format.log"
"${java_short[@]}" "-Dlog4j2.configurationFile=$here/log4j2-server.properties" \
    "-XX:ArchiveClassesAtExit=$made/server.jsa" -cp "$class_path" \
    kafka.Kafka "$work/server.properties" > "$work/broker.log" 2>&1 < /dev/null &
broker=$!
for _ in $(seq 600); do
    if grep -q "Kafka Server started" "$work/broker.log"; then break; fi
    if ! kill -0 "$broker" 2>/dev/null; then cat "$work/broker.log"; exit 1; fi
    sleep 0.1
done
if ! grep -q "Kafka Server started" "$work/broker.log"; then
    echo "the broker has not started in a minute" >&2
    cat "$work/broker.log" >&2
    exit 1
fi
"${java_short[@]}" "-Dlog4j2.configurationFile=$here/log4j2-tools.properties" \
    "-XX:ArchiveClassesAtExit=$made/tools.jsa" -cp "$class_path" \
    WarmTools "127.0.0.1:$port" > "$work/tools.log" 2>&1 || { cat "$work/tools.log"; exit 1; }
kill -TERM "$broker"
wait "$broker" || true
broker=
for archive in server tools; do
    if [[ ! -s $made/$archive.jsa ]]; then
        echo "no class archive was made: $made/$archive.jsa" >&2
        cat "$work/broker.log" "$work/tools.log" >&2
        exit 1
    fi
done
