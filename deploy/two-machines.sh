#!/bin/sh
# Two machines on one: a coordinator on an open address, and a worker in a network namespace of its own, which joins by the line
# that the coordinator prints. Needs root and iproute2.
#
#   cargo build --release && deploy/two-machines.sh target/release/ata
set -eu
ata=$(realpath "${1:?expected the program, as in target/release/ata}")
here=$(realpath "$(dirname "$0")")
folder=$(mktemp -d)
cd "$folder"
cleanup() {
    ip netns delete "${space:-}" 2>/dev/null || true
    kill "${coordinator:-}" 2>/dev/null || true
    rm -r "$folder"
}
trap cleanup EXIT

network=10.117.7
. "$here/second-machine.sh"

"$ata" coordinator --listen 0.0.0.0:7070 --credentials credentials --iterations 20 --out run --print-join 2> log &
coordinator=$!
until line=$(sed -n 's/^start workers with: ata //p' log) && test -n "$line"; do
    kill -0 "$coordinator" || { cat log; exit 1; }
    sleep 0.1
done
echo "in another network: ata $line"
# shellcheck disable=SC2086 # the line is several words
ip netns exec "$space" "$ata" $line --device cpu
wait "$coordinator"
coordinator=
grep -E 'worker (connected|ready)' log
grep -o '"iterations": [0-9]*' run/summary.json
