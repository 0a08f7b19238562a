#!/usr/bin/env bash
# Fills target/kit with what the tests against real Apache Kafka need, once: the jars of Kafka 4.4.0
# (Maven), the programs of tests/kafka/java compiled, and archives of loaded classes that make each
# Java process start in a third of the time. Does nothing where all of it is there and current.
# TARN_KIT names another directory. Needs java, javac and mvn; tests/run.sh installs them.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kit=${TARN_KIT:-$here/../../target/kit}
mkdir -p "$kit/k440"
kit=$(cd "$kit" && pwd)
k440=$kit/k440

say() { printf '== %s\n' "$*"; }

jars_stamp=$(sha256sum < "$here/pom.xml")
if [[ $(cat "$k440/jars.stamp" 2>/dev/null || true) != "$jars_stamp" ]]; then
    say "getting the jars of Apache Kafka with Maven"
    rm -rf "$k440/lib" "$k440/classpath"
    mvn -q -B -f "$here/pom.xml" \
        org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
        -DincludeScope=runtime "-DoutputDirectory=$k440/lib" < /dev/null
    printf '%s\n' "$jars_stamp" > "$k440/jars.stamp"
fi

stamp=$(cat "$k440/jars.stamp" "$here"/java/*.java "${BASH_SOURCE[0]}" <(java -version 2>&1) <(echo "$kit") | sha256sum)
if [[ $(cat "$k440/classes.stamp" 2>/dev/null || true) == "$stamp" ]]; then
    exit 0
fi

say "compiling tests/kafka/java"
rm -rf "$k440/classes" "$k440/classes.stamp" "$k440"/*.jsa
mkdir -p "$k440/classes"
javac -Xlint:all -Werror -d "$k440/classes" -cp "$k440/lib/*" "$here"/java/*.java
# An archive wants jars, in the same order whenever it is made and used.
jar --create --file "$k440/tests.jar" -C "$k440/classes" .
class_path=$(printf '%s:' "$k440"/lib/*.jar)$k440/tests.jar
printf '%s\n' "$class_path" > "$k440/classpath"

say "archiving the classes of a broker and of the tools"
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
    "-XX:ArchiveClassesAtExit=$k440/server.jsa" -cp "$class_path" \
    kafka.Kafka "$work/server.properties" > "$work/broker.log" 2>&1 < /dev/null &
broker=$!
for _ in $(seq 600); do
    if grep -q "Kafka Server started" "$work/broker.log"; then break; fi
    if ! kill -0 "$broker" 2>/dev/null; then cat "$work/broker.log"; exit 1; fi
    sleep 0.1
done
"${java_short[@]}" "-Dlog4j2.configurationFile=$here/log4j2-tools.properties" \
    "-XX:ArchiveClassesAtExit=$k440/tools.jsa" -cp "$class_path" \
    WarmTools "127.0.0.1:$port" > "$work/tools.log" 2>&1 || { cat "$work/tools.log"; exit 1; }
kill -TERM "$broker"
wait "$broker" || true
broker=
for archive in server tools; do
    if [[ ! -s $k440/$archive.jsa ]]; then
        echo "no class archive was made: $k440/$archive.jsa" >&2
        cat "$work/broker.log" "$work/tools.log" >&2
        exit 1
    fi
done
printf '%s\n' "$stamp" > "$k440/classes.stamp"
