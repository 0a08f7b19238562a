#!/bin/sh
# The command line of KIP-1279 for cluster mirrors: the same flags, served by `tarn`.
# TARN_BIN names the binary; without it the one built here is used, else the one on the PATH.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
built=$here/../../target/release/tarn
if [ -n "$TARN_BIN" ]; then
    exec "$TARN_BIN" kafka-cluster-mirrors "$@"
elif [ -x "$built" ]; then
    exec "$built" kafka-cluster-mirrors "$@"
elif command -v tarn >/dev/null 2>&1; then
    exec tarn kafka-cluster-mirrors "$@"
fi
echo "kafka-cluster-mirrors.sh: tarn is not built: run 'cargo build --release -p tarn', or set TARN_BIN" >&2
exit 1
