#!/usr/bin/env bash
# Fills target/kit with what the tests against real Apache Kafka need, once: the jars of Kafka 4.4.0
# (Maven), the programs of tests/kafka/java compiled, and archives of loaded classes that make each
# Java process start in a third of the time. Does nothing where all of it is there and current. What is
# made anew has a directory of its own and `current` is pointed at it in the end, so that tests which run
# go on with what they began with. Where a JVM makes no archive, tests go on without.
# TARN_KIT names another directory. Needs java, javac and mvn; tests/run.sh installs them.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kit=${TARN_KIT:-$here/../../target/kit}
mkdir -p "$kit/k440"
# By its one true name, which the archives hold, however many trees share it.
kit=$(cd "$kit" && pwd -P)
k440=$kit/k440
exec 9> "$k440/lock"
flock 9

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

stamp=$(cat "$k440/jars.stamp" "$here"/java/*.java "$here"/*.sh <(java -version 2>&1) <(echo "$kit") |
    sha256sum | cut -c 1-16)
made=$k440/made-$stamp
if [[ ! -e $made/complete ]]; then
    rm -rf "$made"
    mkdir -p "$made/classes"
    say "compiling tests/kafka/java"
    javac -Xlint:all -Werror -d "$made/classes" -cp "$k440/lib/*" "$here"/java/*.java
    # An archive wants jars, in the same order whenever it is made and used.
    jar --create --file "$made/tests.jar" -C "$made/classes" .
    printf '%s:' "$k440"/lib/*.jar "$made/tests.jar" | sed 's/:$//' > "$made/classpath"
    say "archiving the classes of a broker and of the tools"
    if bash "$here/archive.sh" "$made" 9>&-; then
        touch "$made/complete"
    else
        # The next run tries again.
        echo "Java processes of the tests will start slowly" >&2
    fi
fi
ln -sfn "made-$stamp" "$k440/current.new"
mv -T "$k440/current.new" "$k440/current"
# Tests that began before may still use those that are not so old.
find "$k440" -maxdepth 1 -name 'made-*' ! -name "made-$stamp" -mmin +1440 -exec rm -rf {} +
