#!/bin/sh
# The same work on kube-apiserver + etcd and on Pintle, one after the other, and the ratios.
#
#   benches/compare.sh [BIN_DIR] [OPTIONS OF pintle-bench run...]
#
# BIN_DIR holds kube-apiserver and etcd (default: $BENCH_BIN, then tools/bin). Further arguments go to
# `pintle-bench run`, for example:  --pods 2000 --seconds 5 --scenario 'get,list*'
#
# Environment: PINTLE (default target/release/pintle), BENCH (default target/release/pintle-bench),
# BENCH_OUT (where results and logs go; default: a new directory under $TMPDIR), BENCH_STARTS (launches
# of the start-up measurement, default 5; 0 skips it), PINTLE_ARGS (further flags of Pintle), PINTLE_STORE
# (etcd: Pintle keeps its objects in an etcd, too, which counts with it; default: in its own store).
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
pintle=${PINTLE:-$target/release/pintle}
bench=${BENCH:-$target/release/pintle-bench}
starts=${BENCH_STARTS:-5}
bin=${BENCH_BIN:-$root/tools/bin}
case "${1:-}" in
'' | -*) ;;
*) bin=$1 && shift ;;
esac
out=${BENCH_OUT:-$(mktemp -d "${TMPDIR:-/tmp}/pintle-bench.XXXXXX")}
mkdir -p "$out"

for program in "$pintle" "$bench" "$bin/kube-apiserver" "$bin/etcd"; do
    [ -x "$program" ] || { echo "compare.sh: $program is missing" >&2; exit 1; }
done

# Everything on the loopback interface, on ports of its own.
etcd_port=${BENCH_ETCD_PORT:-23790}
etcd_peer_port=${BENCH_ETCD_PEER_PORT:-23800}
port=${BENCH_PORT:-26443}
token=pintle-bench-token

# The servers in the order they have to end: kube-apiserver cannot say goodbye without its etcd.
pids=
stop() {
    for pid in $pids; do
        kill "$pid" 2>/dev/null || continue
        (sleep 20 && kill -KILL "$pid") >/dev/null 2>&1 &
        watchdog=$!
        wait "$pid" 2>/dev/null || true
        kill "$watchdog" 2>/dev/null || true
        wait "$watchdog" 2>/dev/null || true
    done
    pids=
}
trap stop EXIT
trap 'exit 1' INT TERM

start_etcd() {
    "$bin/etcd" --data-dir "$out/etcd-$1" --log-level warn \
        --listen-client-urls "http://127.0.0.1:$etcd_port" \
        --advertise-client-urls "http://127.0.0.1:$etcd_port" \
        --listen-peer-urls "http://127.0.0.1:$etcd_peer_port" \
        --initial-advertise-peer-urls "http://127.0.0.1:$etcd_peer_port" \
        --initial-cluster "default=http://127.0.0.1:$etcd_peer_port" \
        --quota-backend-bytes 8589934592 >"$out/etcd-$1.log" 2>&1 &
    etcd_pid=$!
    pids="$etcd_pid $pids"
    sleep 1
}

# Both servers know one user, in system:masters, by a token; kube-apiserver needs a ServiceAccount key.
openssl genrsa -out "$out/sa.key" 2048 2>/dev/null
echo "$token,bench,bench,\"system:masters\"" >"$out/tokens.csv"
common_flags="--bind-address=127.0.0.1 --secure-port=$port --token-auth-file=$out/tokens.csv \
--authorization-mode=Node,RBAC"
kube_flags="$common_flags --etcd-servers=http://127.0.0.1:$etcd_port --cert-dir=$out/kube-certs \
--service-cluster-ip-range=10.0.0.0/16 --service-account-issuer=https://kubernetes.default.svc \
--service-account-key-file=$out/sa.key --service-account-signing-key-file=$out/sa.key"
pintle_flags="$common_flags ${PINTLE_ARGS:-}"

if [ "$starts" -gt 0 ]; then
    start_etcd start
    "$bench" start --name kube-apiserver --runs "$starts" --url "https://127.0.0.1:$port" \
        --token "$token" --json "$out/kube-apiserver-start.json" \
        --server "$bin/kube-apiserver $kube_flags --etcd-prefix=/bench-{n}"
    stop
    "$bench" start --name pintle --runs "$starts" --url "https://127.0.0.1:$port" \
        --token "$token" --json "$out/pintle-start.json" \
        --server "$pintle $pintle_flags --data-dir=$out/pintle-start-{n}"
fi

start_etcd run
# The flags hold no spaces but those between them.
# shellcheck disable=SC2086
"$bin/kube-apiserver" $kube_flags >"$out/kube-apiserver.log" 2>&1 &
server_pid=$!
pids="$server_pid $pids"
"$bench" run --server "kube-apiserver=https://127.0.0.1:$port" --token "$token" \
    --pid "$server_pid" --pid "$etcd_pid" --json "$out/kube-apiserver.json" "$@"
stop

pintle_pids=
if [ "${PINTLE_STORE:-}" = etcd ]; then
    start_etcd pintle
    pintle_flags="$pintle_flags --etcd-servers=http://127.0.0.1:$etcd_port"
    pintle_pids="--pid $etcd_pid"
fi
# shellcheck disable=SC2086
"$pintle" $pintle_flags --data-dir="$out/pintle-data" >"$out/pintle.log" 2>&1 &
server_pid=$!
pids="$server_pid $pids"
# shellcheck disable=SC2086
"$bench" run --server "pintle=https://127.0.0.1:$port" --token "$token" \
    --pid "$server_pid" $pintle_pids --json "$out/pintle.json" "$@"
stop

if [ "$starts" -gt 0 ]; then
    "$bench" compare "$out/kube-apiserver-start.json" "$out/pintle-start.json"
fi
"$bench" compare "$out/kube-apiserver.json" "$out/pintle.json"
echo "results and logs: $out" >&2
