#!/usr/bin/env bash
# A worker whose uplink becomes slow and recovers: steps of three workers of 20 ms a task, B = 24, in network namespaces on one switch.
# Needs root, `ip` and `tc`.
#
#     deploy/slow-uplink.sh ATA [RATE [FLAGS…]]
#
# RATE: of the third worker's link to the others while it is slow, as tc takes it [200kbps, which are kilobytes]. FLAGS: of
# `ata coordinator`, as in --exchange star. In the environment: LINK, the rate of each link otherwise [1gbit]; FAST, SLOW and AFTER, steps
# before it becomes slow, while it is, and after it has recovered [30, 40, 150]; FAST=0 has it slow from the start; MODEL [of 270 kB a
# gradient]. Prints seconds per step, and fails if the steps after the third slow one take more than 1.05 times those without the worker,
# or it is not in use again at the end.
set -euo pipefail

usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 64; }
[ $# -ge 1 ] || usage
ata=$(command -v "$1") || { echo "slow-uplink.sh: no program $1" >&2; exit 64; }
ata=$(realpath "$ata")
rate=${2:-200kbps} link=${LINK:-1gbit} fast=${FAST:-30} slow=${SLOW:-40} after=${AFTER:-150}
model=${MODEL:-cnn:widths=16/16/8/256}
shift $(( $# < 2 ? $# : 2 ))
work=$(mktemp -d)
net="ata-slow-$$"

clean() {
    for pid in $(jobs -p); do kill "$pid" 2>/dev/null || true; done
    for host in switch 0 1 2 3; do ip netns del "$net-$host" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean EXIT

ip netns add "$net-switch"
ip -n "$net-switch" link add bridge type bridge
ip -n "$net-switch" link set bridge up
for host in 0 1 2 3; do
    ip netns add "$net-$host"
    ip -n "$net-switch" link add "port$host" type veth peer name eth0 netns "$net-$host"
    ip -n "$net-switch" link set "port$host" master bridge up
    ip -n "$net-$host" addr add "10.78.0.$((host + 1))/24" dev eth0
    ip -n "$net-$host" link set eth0 up
    ip -n "$net-$host" link set lo up
    tc -n "$net-switch" qdisc add dev "port$host" root tbf rate "$link" burst 512kb latency 100ms
    tc -n "$net-$host" qdisc add dev eth0 root tbf rate "$link" burst 512kb latency 100ms
done

# The third worker's uplink has a rate and a burst from now on.
uplink() { tc -n "$net-3" qdisc change dev eth0 root tbf rate "$1" burst "$2" latency "$3"; }

# Starts a coordinator and so many workers, in the folder $work/NAME. Arguments: NAME WORKERS FLAGS…
start() {
    local name=$1 workers=$2
    shift 2
    mkdir "$work/$name"
    ip netns exec "$net-0" "$ata" coordinator --listen 10.78.0.1:7070 --insecure --min-workers "$workers" --model "$model" \
        --task-batch 1 --budget 24 --iterations 100000 --eval-every 0 --checkpoint-every never --out "$work/$name/run" \
        --dashboard off "$@" > "$work/$name/log" 2>&1 & coordinator=$!
    for host in $(seq "$workers"); do
        ip netns exec "$net-$host" "$ata" worker --coordinator http://10.78.0.1:7070 --device cpu --threads 1 --name "worker-$host" \
            --task-time "const(20)" --time-unit 1ms > "$work/$name/worker-$host" 2>&1 &
    done
}

stop() {
    kill "$coordinator"
    wait "$coordinator" || true
    # The workers would wait for the coordinator to return.
    kill $(jobs -p) 2>/dev/null || true
    wait
}

# How many steps the run under way has taken.
steps() {
    local count
    count=$(grep -c '"event":"step"' "$work/$1/run/events.jsonl" 2>/dev/null) || true
    echo "${count:-0}"
}

# Waits until a run has taken so many steps, or for so many seconds. Arguments: NAME STEPS SECONDS
await() {
    local until=$((SECONDS + $3))
    while [ "$(steps "$1")" -lt "$2" ] && [ $SECONDS -lt $until ]; do
        kill -0 "$coordinator" || { tail -5 "$work/$1/log" "$work/$1"/worker-* >&2; exit 1; }
        sleep 0.1
    done
}

# Seconds of the steps from one to another, one a line. Arguments: NAME FIRST LAST
times() {
    grep -o '"event":"step".*' "$work/$1/run/events.jsonl" | grep -o '"time_s":[0-9.]*' | cut -d: -f2 \
        | awk -v first="$2" -v last="$3" 'NR >= first && NR <= last && NR > 1 { print $1 - before } { before = $1 }'
}

median() { sort -n | awk '{ of[NR] = $1 } END { printf "%.3f", of[int((NR + 1) / 2)] }'; }

start without 2 "$@"
await without 40 120
stop
without=$(times without 11 40 | median)
echo "without it:       $without s per step"

[ "$fast" != 0 ] || uplink "$rate" 4kb 4s
start with 3 "$@"
await with "$fast" 120
if [ "$fast" != 0 ]; then
    echo "with it:          $(times with 11 "$fast" | median) s"
    uplink "$rate" 4kb 4s
fi
slow_from=$(($(steps with) + 1))
await with $((slow_from + slow)) 90
slow_to=$(steps with)
uplink "$link" 512kb 100ms
await with $((slow_to + after)) 120
last=$(steps with)
stop
found=$(times with $((slow_from + 4)) "$slow_to" | median)
echo "slow, first four: $(times with "$slow_from" $((slow_from + 3)) | awk '{ printf "%.3f ", $1 }')s"
echo "slow, then:       $found s"
recovered=$(times with $((last - 19)) "$last" | median)
echo "recovered, last:  $recovered s"
# Steps after recovery until its first task.
back=$(grep -o '"event":"\(step\|allocation\)".*' "$work/with/run/events.jsonl" | awk -v from="$slow_to" '
    /"event":"step"/ { steps++ }
    /"event":"allocation"/ && steps >= from {
        split($0, of, "\"workers\":\\["); split(of[2], workers, "]"); split($0, of, "\"allocation\":\\["); split(of[2], tasks, "]")
        split(workers[1], worker, ","); count = split(tasks[1], task, ",")
        for (i = 1; i <= count; i++) if (worker[i] == 3 && task[i] > 0 && !found) { print steps - from; found = 1 }
    }')
echo "in use again after ${back:-none} steps"
awk -v found="$found" -v without="$without" -v recovered="$recovered" -v back="${back:-none}" 'BEGIN {
    if (found > 1.05 * without) { print "FAILED: slow steps take more than 1.05 times those without it"; bad = 1 }
    if (back == "none" || recovered > 0.9 * without) { print "FAILED: it is not in use again"; bad = 1 }
    exit bad
}' >&2
