#!/bin/sh
# What several Pintle servers over one etcd cost: each serves reads from its own watch cache.
#
#   benches/replicas.sh [SERVERS...]      (default: 1 2 3)
#
# For each number of servers: pods are created through the first one, which prints the CPU time of each process, and then read
# through the last one. (`pintle-bench run` makes its own pods, so that only one of them can run at a time.)
#
# Environment: PINTLE (default target/release/pintle), BENCH (default target/release/pintle-bench), BENCH_BIN (where
# etcd is; default tools/bin), BENCH_SECONDS (time of each phase, default 10), BENCH_SHARD (not empty: pods are in an
# etcd of their own, by --etcd-servers-overrides). Everything is on loopback and in a new directory under $TMPDIR.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
pintle=${PINTLE:-$target/release/pintle}
bench=${BENCH:-$target/release/pintle-bench}
etcd=${BENCH_BIN:-$root/tools/bin}/etcd
seconds=${BENCH_SECONDS:-10}
token=pintle-bench-token
[ $# -gt 0 ] || set -- 1 2 3

for program in "$pintle" "$bench" "$etcd"; do
    [ -x "$program" ] || { echo "replicas.sh: $program is missing" >&2; exit 1; }
done

dir=$(mktemp -d "${TMPDIR:-/tmp}/pintle-replicas.XXXXXX")
# Servers before the etcd that they need.
pids=
stop() {
    for pid in $pids; do
        kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true
    done
    pids=
}
trap 'stop; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
echo "$token,bench,bench,\"system:masters\"" >"$dir/tokens.csv"

# start_etcd NAME PORT
start_etcd() {
    "$etcd" --data-dir "$dir/$1" --log-level warn --quota-backend-bytes 8589934592 \
        --listen-client-urls "http://127.0.0.1:$2" --advertise-client-urls "http://127.0.0.1:$2" \
        --listen-peer-urls "http://127.0.0.1:$(($2 + 1))" \
        --initial-advertise-peer-urls "http://127.0.0.1:$(($2 + 1))" \
        --initial-cluster "default=http://127.0.0.1:$(($2 + 1))" >"$dir/$1.log" 2>&1 &
    pids="$! $pids"
    names="$!=$1 $names"
}

# cpu PID: user and system time, in clock ticks
cpu() {
    sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'
}

# measure PHASE: prints the CPU time of each process since it was called last.
measure() {
    for entry in $names; do
        pid=${entry%%=*}
        now=$(cpu "$pid")
        before=$(cat "$dir/cpu-$pid" 2>/dev/null || echo 0)
        echo "$now" >"$dir/cpu-$pid"
        [ -z "$1" ] || awk -v n="$count" -v p="$1" -v s="${entry#*=}" -v t="$((now - before))" \
            'BEGIN { printf "%d servers\t%s\t%s\t%.2f s of CPU\n", n, p, s, t / 100 }'
    done
}

run() {
    "$bench" run "$@" --token "$token" --pods 1000 --seconds "$seconds"
}

for count in "$@"; do
    names=
    start_etcd "etcd-$count" 23790
    overrides=
    if [ -n "${BENCH_SHARD:-}" ]; then
        start_etcd "etcd-pods-$count" 23890
        overrides="--etcd-servers-overrides=/pods#http://127.0.0.1:23890"
    fi
    sleep 1
    number=1
    while [ "$number" -le "$count" ]; do
        # shellcheck disable=SC2086 # none or one flag
        "$pintle" --bind-address=127.0.0.1 --secure-port=$((26440 + number)) --token-auth-file="$dir/tokens.csv" \
            --etcd-servers=http://127.0.0.1:23790 $overrides --data-dir="$dir/data-$count-$number" \
            >"$dir/pintle-$count-$number.log" 2>&1 &
        pids="$! $pids"
        names="$names$!=server-$number "
        number=$((number + 1))
    done
    number=1
    while [ "$number" -le "$count" ]; do
        until curl -ks "https://127.0.0.1:$((26440 + number))/readyz" >"$dir/ready" && grep -q '^ok' "$dir/ready"; do
            sleep 0.1
        done
        number=$((number + 1))
    done
    measure ''
    run --server "writes-of-$count=https://127.0.0.1:26441" --scenario create-64
    measure writes
    # Reads through the last server, with its own CPU time: the others have no part in them.
    last=${names% }
    last=${last##* }
    run --server "reads-of-$count=https://127.0.0.1:$((26440 + count))" --pid "${last%%=*}" --scenario get
    stop
done
