#!/usr/bin/env bash
# Fills target/kit with the jars of one older Apache Kafka, once: `prepare.sh 2.1.1`, for each version that
# tests/kafka/old/pom.xml knows. The tests that need one run this; where the jars are there and current, it
# only looks. TARN_KIT names another directory. Needs mvn; tests/run.sh installs it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=$1
kit=${TARN_KIT:-$here/../../../target/kit}
made=$kit/old-$version
mkdir -p "$made"
exec 9> "$made/lock"
flock 9

stamp=$(sha256sum < "$here/pom.xml")
if [[ $(cat "$made/jars.stamp" 2>/dev/null || true) != "$stamp" ]]; then
    printf '== getting the jars of Apache Kafka %s with Maven\n' "$version"
    rm -rf "$made/lib"
    mvn -q -B -f "$here/pom.xml" -P "$version" \
        org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
        -DincludeScope=runtime "-DoutputDirectory=$made/lib" < /dev/null
    printf '%s\n' "$stamp" > "$made/jars.stamp"
fi
