#!/bin/sh
# What data in shards are worth on a slow link: a coordinator, and a worker in a network namespace of its own behind a link of 100 Mbit/s,
# which fetches 50,000 images as one file or in shards of a megabyte. Prints the seconds until the first step, and what came over the link
# until the twentieth. Needs root, iproute2 and python3.
#
#   cargo build --release && deploy/data-shards.sh target/release/ata
set -eu
ata=$(realpath "${1:?expected the program, as in target/release/ata}")
here=$(realpath "$(dirname "$0")")
folder=$(mktemp -d)
cd "$folder"
cleanup() {
    pkill -KILL -P $$ || true
    ip netns delete "${space:-}" 2>/dev/null || true
    rm -rf "$folder"
}
trap cleanup EXIT

network=10.117.8
. "$here/second-machine.sh"
tc qdisc add dev "$link" root tbf rate 100mbit burst 128kb latency 50ms

# CIFAR-10's layout, with random pixels: 154 MB.
mkdir batches
python3 - <<'PYTHON'
import os
for name in [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]:
    with open(f"batches/{name}", "wb") as file:
        for record in range(10_000):
            file.write(bytes([record % 10]) + os.urandom(3072))
PYTHON
"$ata" data pack batches whole >/dev/null
"$ata" data pack batches shards --shard-mb 1 >/dev/null

for data in whole shards; do
    "$ata" coordinator --listen 10.117.8.1:7070 --insecure --dashboard off --data "$data" --out "run-$data" --iterations 20 --budget 8 \
        --task-batch 8 --eval-every 0 --evaluate-on head --ready-file ready >/dev/null 2>"$data.log" &
    until [ -s ready ]; do kill -0 $! || { cat "$data.log"; exit 1; }; sleep 0.1; done
    rm ready
    before=$(cat "/sys/class/net/$link/statistics/tx_bytes")
    began=$(date +%s.%N)
    ATA_CACHE_DIR="cache-$data" ip netns exec "$space" "$ata" worker --coordinator http://10.117.8.1:7070 --device cpu 2>/dev/null &
    until grep -qs '"event":"step"' "run-$data/events.jsonl"; do sleep 0.05; done
    seconds=$(echo "$(date +%s.%N) - $began" | bc)
    wait
    bytes=$(($(cat "/sys/class/net/$link/statistics/tx_bytes") - before))
    printf '%-7s first step after %5.1f s, %4d MB sent to the worker in 20 steps\n' "$data" "$seconds" $((bytes / 1000000))
done
