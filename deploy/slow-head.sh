#!/usr/bin/env bash
# Measures evaluations by workers where the coordinator has a fifth of a core: four workers, one of which is so slow that it gets almost
# no tasks, train the CNN, and the parameters are evaluated every ten steps, first by the coordinator and then by workers.
#
#     sudo deploy/slow-head.sh target/release/ata [STEPS]
#
# Prints for each run: seconds in all, evaluations that were made, and the loss and accuracy of the last one, which are the same. Needs Linux, root, for a
# control group, and python3. Nothing else should run meanwhile.
set -euo pipefail

ata=$(realpath "${1:?usage: deploy/slow-head.sh ATA [STEPS]}")
steps=${2:-300}
period_us=100000
folder=$(mktemp -d)
if [[ -d /sys/fs/cgroup/cpu ]]; then
    group=/sys/fs/cgroup/cpu/ata-slow-head-$$
    mkdir "$group"
    echo $period_us >"$group/cpu.cfs_period_us"
    echo $((period_us / 5)) >"$group/cpu.cfs_quota_us"
else
    group=/sys/fs/cgroup/ata-slow-head-$$
    echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
    mkdir "$group"
    echo "$((period_us / 5)) $period_us" >"$group/cpu.max"
fi
cleanup() {
    pkill -KILL -P $$ || true
    sleep 0.5
    rmdir "$group" || true
    rm -rf "$folder"
}
trap cleanup EXIT

for who in head workers; do
    run=$folder/$who
    (
        echo $BASHPID >"$group/cgroup.procs"
        exec "$ata" coordinator --listen 127.0.0.1:0 --ready-file "$folder/$who.json" --out "$run" --min-workers 4 \
            --iterations "$steps" --eval-every 10 --evaluate-on $who --dashboard off --checkpoint-every never 2>"$folder/$who.log"
    ) &
    head=$!
    until [[ -s $folder/$who.json ]]; do
        kill -0 $head || { cat "$folder/$who.log"; exit 1; }
        sleep 0.1
    done
    address=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["address"])' "$folder/$who.json")
    for number in 1 2 3 4; do
        slowness=$((number == 4 ? 100 : number))
        "$ata" worker --coordinator "http://$address" --name "worker-$number" --number $number --threads 1 --device cpu \
            --task-time "scale($slowness)" 2>/dev/null &
    done
    wait
    python3 - "$run" "$who" <<'PYTHON'
import json
import sys

folder, who = sys.argv[1:]
events = [json.loads(line) for line in open(f"{folder}/events.jsonl")]
steps = [event for event in events if event["event"] == "step"]
evaluations = [event for event in events if event["event"] == "evaluation"]
last, training_s = evaluations[-1], steps[-1]["time_s"] - steps[0]["time_s"]
print(
    f"{who:8} {len(steps)} steps in {training_s:.2f} s, the end {events[-1]['time_s'] - steps[-1]['time_s']:.2f} s later; "
    f"{len(evaluations)} evaluations, the last one: loss {last['loss']!r}, accuracy {last['accuracy']!r}"
)
PYTHON
done
