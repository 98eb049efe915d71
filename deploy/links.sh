#!/usr/bin/env bash
# Seconds per step on shaped links: a coordinator and workers in network namespaces on one switch. Needs root, `ip` and `tc`.
#
#     deploy/links.sh ATA [RATE [WIDTH [WORKERS [FLAGS…]]]]
#
# RATE: of each link, full duplex [1gbit]; HEAD=RATE in the environment is that of the coordinator's, BURST=SIZE what a link that was idle
# lets through at once [512kb, which is 4 ms at 1gbit], and QUEUE=TIME what may wait in front of one [100ms]. WIDTH: of the model; 640 is
# 43 MB, 128 is 8.9 MB [640]. WORKERS: how many [4], of 20, 40, 80 and 160 ms a task in turn (MS="20 40 80 160" in the environment; 30+2 is
# 30 ms for a batch and 2 for each task). BATCH: samples of a task [1], which a worker's one thread must be able to compute in that time.
# BUDGET: tasks of a step, in the environment [23]; or LOCAL: inner steps of a round, or auto, for which ITERATIONS counts rounds of 240.
# ITERATIONS: how many, in the environment [25]. FLAGS: of `ata coordinator`, as in --exchange star. Prints the median over the steps after
# the fifth, and what `ata simulate` takes for them: it expects compact gradients of 16 samples, and those of one sample are a third shorter.
#
# Links on which steps take 1.00 to 1.05 times (once 1.12) what is simulated:
#     BATCH=16 BURST=100kb deploy/links.sh ATA 200mbit 128
#     BATCH=16 BURST=100kb MS="100 200" deploy/links.sh ATA 200mbit 128 8
#     BATCH=16 BURST=100kb MS="40 80 160 320" deploy/links.sh ATA 200mbit 128 8
#     BATCH=16 BURST=100kb deploy/links.sh ATA 200mbit 128 4 --exchange star
#     BATCH=16 deploy/links.sh ATA 1gbit 128
#     BATCH=16 MS="100 200 400 800" deploy/links.sh ATA 1gbit 640
#
# Machines at home: UP=RATE in the environment is what workers send at, as in
#     UP=20mbit HEAD=1gbit LOCAL=240 deploy/links.sh ATA 100mbit 128
set -euo pipefail

usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 64; }
[ $# -ge 1 ] || usage
ata=$(command -v "$1") || { echo "links.sh: no program $1" >&2; exit 64; }
ata=$(realpath "$ata")
tasks=${LOCAL:-${BUDGET:-23}} iterations=${ITERATIONS:-25}
rate=${2:-1gbit} burst=${BURST:-512kb} queue=${QUEUE:-100ms} width=${3:-640} workers=${4:-4}
shift $(( $# < 4 ? $# : 4 ))
counted=(--budget "$tasks")
[ -z "${LOCAL:-}" ] || counted=(--local-steps "$tasks")
[[ $tasks != auto* ]] || { iterations=$((iterations * 240 / ${BUDGET:-24})) && counted+=(--budget "${BUDGET:-24}"); }
read -ra ms <<< "${MS:-20 40 80 160}"
laws=()
for time in "${ms[@]}"; do
    case $time in
        *+*) laws+=("affine(${time%+*}, ${time#*+})") ;;
        *) laws+=("const($time)") ;;
    esac
done
# Those flags that `ata simulate` has, too. It takes shards wherever they are shorter.
simulated=()
for ((at = 1; at < $#; at += 2)); do
    next=$((at + 1))
    case "${!at} ${!next}" in --policy* | --wire* | "--exchange star") simulated+=("${!at}" "${!next}") ;; esac
done
[[ " ${simulated[*]} " == *" --wire "* ]] || simulated+=(--wire compact)
[[ " ${simulated[*]} " == *" --policy "* ]] || simulated+=(--policy ata-auto)
work=$(mktemp -d)
switch=ata-switch

clean() {
    for host in $(seq 0 "$workers"); do ip netns del "ata-$host" 2>/dev/null || true; done
    ip netns del $switch 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT

ip netns add $switch
ip -n $switch link add bridge type bridge
ip -n $switch link set bridge up
for host in $(seq 0 "$workers"); do
    own=$rate
    [ "$host" != 0 ] || own=${HEAD:-$rate}
    ip netns add "ata-$host"
    ip -n $switch link add "port$host" type veth peer name eth0 netns "ata-$host"
    ip -n $switch link set "port$host" master bridge up
    ip -n "ata-$host" addr add "10.77.0.$((host + 1))/24" dev eth0
    ip -n "ata-$host" link set eth0 up
    ip -n "ata-$host" link set lo up
    up=$own
    [ "$host" = 0 ] || up=${UP:-$rate}
    tc -n $switch qdisc add dev "port$host" root tbf rate "$own" burst "$burst" latency "$queue"
    tc -n "ata-$host" qdisc add dev eth0 root tbf rate "$up" burst "$burst" latency "$queue"
done

ip netns exec ata-0 "$ata" coordinator --listen 10.77.0.1:7070 --insecure --min-workers "$workers" \
    --model "cnn:widths=16/16/$width/1024" --task-batch "${BATCH:-1}" "${counted[@]}" --iterations "$iterations" --eval-every 0 --checkpoint-every never \
    --out "$work/run" --dashboard off "$@" > "$work/log" 2>&1 & coordinator=$!
for host in $(seq "$workers"); do
    ip netns exec "ata-$host" "$ata" worker --coordinator http://10.77.0.1:7070 --device cpu --threads 1 --name "worker-$host" \
        --task-time "${laws[$(((host - 1) % ${#laws[@]}))]}" --time-unit 1ms > "$work/worker-$host" 2>&1 &
done
wait $coordinator || { tail -5 "$work/log" "$work"/worker-* >&2; exit 1; }
wait
# Times at which the steps ended, and what lies between them.
measured=$(grep -o '"event":"step".*' "$work/run/events.jsonl" | grep -o '"time_s":[0-9.]*' | cut -d: -f2 | tail -n +5 \
    | awk 'NR > 1 { print $1 - last } { last = $1 }' | sort -n | awk '{ step[NR] = $1 } END { print step[int((NR + 1) / 2)] }')
if [ -n "${UP:-}${LOCAL:-}" ]; then
    tasks=$(grep -o '"event":"step".*' "$work/run/events.jsonl" | grep -o '"tasks":[0-9]*' | cut -d: -f2 | tail -n +6 | sort -n \
        | awk '{ step[NR] = $1 } END { print step[int((NR + 1) / 2)] }')
    awk -v s="$measured" -v tasks="$tasks" 'BEGIN { printf "%.3f s for %d tasks: %.1f a second\n", s, tasks, tasks / s }'
    exit
fi
# A rate as `ata simulate` names it: 1Gbit for tc's 1gbit.
named() { sed 's/[kmg]bit/\u&/' <<< "$1"; }
# The mean of the first N iterations of a simulation.
mean() {
    local law
    law=$(printf '; %s' "${laws[@]}")
    "$ata" simulate --task-time "${law#; }" --workers "$workers" --budget "${BUDGET:-23}" --iterations "$1" --link "$(named "$rate")" \
        --head-link "$(named "${HEAD:-$rate}")" --model-bytes "$((4 * (106292 + 16529 * width)))B" "${simulated[@]}" --json \
        | grep -o '"mean_iteration_time": [0-9.]*' | cut -d: -f2
}
awk -v measured="$measured" -v all="$(mean 25)" -v first="$(mean 5)" 'BEGIN {
    simulated = (25 * all - 5 * first) / 20 / 1000
    printf "%.3f s per step, simulated %.3f: %.2f of it\n", measured, simulated, measured / simulated
}'
