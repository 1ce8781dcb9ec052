#!/bin/sh
# How long a server with many objects takes to start, and how much memory it holds.
#
#   benches/scale.sh [PODS] [RUNS]        (default: 10000 pods, 7 launches)
#
# Environment: PINTLE (default target/release/pintle), BENCH (default target/release/pintle-bench),
# BENCH_PORT (default 26443), PINTLE_ARGS (further flags of Pintle). The data is kept in a new directory
# under $TMPDIR and removed at the end.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
pintle=${PINTLE:-$target/release/pintle}
bench=${BENCH:-$target/release/pintle-bench}
port=${BENCH_PORT:-26443}
pods=${1:-10000}
runs=${2:-7}

for program in "$pintle" "$bench"; do
    [ -x "$program" ] || { echo "scale.sh: $program is missing" >&2; exit 1; }
done

dir=$(mktemp -d "${TMPDIR:-/tmp}/pintle-scale.XXXXXX")
pid=
stop() {
    [ -z "$pid" ] || { kill "$pid" && wait "$pid" || true; }
    pid=
}
trap 'stop; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM

# shellcheck disable=SC2086 # several flags
"$pintle" --data-dir "$dir" --secure-port "$port" ${PINTLE_ARGS:-} >"$dir/log" 2>&1 &
pid=$!
while [ ! -s "$dir/admin.kubeconfig" ]; do
    kill -0 "$pid" || { cat "$dir/log" >&2; exit 1; }
    sleep 0.1
done
"$bench" run --server "pintle=https://127.0.0.1:$port" --kubeconfig "$dir/admin.kubeconfig" \
    --pid "$pid" --pods "$pods" --scenario get
stop
du -sh "$dir/store"
"$bench" start --server "$pintle --data-dir $dir --secure-port $port ${PINTLE_ARGS:-}" --name pintle \
    --kubeconfig "$dir/admin.kubeconfig" --runs "$runs"
