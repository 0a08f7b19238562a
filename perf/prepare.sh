#!/usr/bin/env bash
# Fills target/kit with what the measurements need, once: Apache Kafka's jars (tests/kafka/prepare.sh) and,
# with `mirrormaker`, those of MirrorMaker 2. Does nothing where they are there and current.
# TARN_KIT names another directory. Needs java, javac and mvn.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kit=${TARN_KIT:-$here/../target/kit}

bash "$here/../tests/kafka/prepare.sh"
if [[ ${1:-} != mirrormaker ]]; then exit 0; fi
stamp=$(sha256sum < "$here/mirrormaker/pom.xml")
if [[ $(cat "$kit/mirrormaker/jars.stamp" 2>/dev/null || true) == "$stamp" ]]; then exit 0; fi
printf '== %s\n' "getting the jars of MirrorMaker 2 with Maven"
rm -rf "$kit/mirrormaker"
mkdir -p "$kit/mirrormaker"
mvn -q -B -f "$here/mirrormaker/pom.xml" \
    org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime "-DoutputDirectory=$(cd "$kit" && pwd)/mirrormaker/lib" < /dev/null
printf '%s\n' "$stamp" > "$kit/mirrormaker/jars.stamp"
