#!/usr/bin/env bash
# What a fault costs an exchange in shards: a coordinator and workers in network namespaces on one switch, with links of 200 Mbit/s and
# a model of 8.9 MB. Needs root, `ip`, `tc`, `bridge` and python3.
#
#     deploy/shards-faults.sh ATA CASE [WORKERS [RATE]]
#
# CASE: slow-way (from step 8 on, the way from worker 1 to the other workers carries RATE [1kbps, which is 1 kB/s]), stopped (worker 1 is
# stopped for 10 s, once in a star and once in shards), unreachable (no worker reaches another one), ipv6 (all addresses are of IPv6).
# WORKERS: how many [3]. Prints seconds per step before the fault, what was lost after it, and who was lost or got no work. Fails if more
# than one step suffers from slow-way, if stopped costs 2.7 s more than in a star, if unreachable costs anything, if there are no steps
# in shards over IPv6, or if any worker but the stopped one is lost or rests.
set -euo pipefail

usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 64; }
[ $# -ge 2 ] || usage
ata=$(command -v "$1") || { echo "shards-faults.sh: no program $1" >&2; exit 64; }
ata=$(realpath "$ata")
fault=$2 workers=${3:-3} slow=${4:-1kbps}
work=$(mktemp -d)
id=sf$$
bandwidth=200mbit
case $fault in slow-way|stopped|unreachable|ipv6) ;; *) usage ;; esac
address() { if [ "$fault" = ipv6 ]; then echo "fd77::$((host + 1))"; else echo "10.78.0.$((host + 1))"; fi; }

clean() {
    jobs -p | xargs -r kill -KILL 2>/dev/null || true
    for host in $(seq 0 "$workers"); do ip netns del "$id-$host" 2>/dev/null || true; done
    ip netns del "$id-switch" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT

ip netns add "$id-switch"
ip -n "$id-switch" link add bridge type bridge
ip -n "$id-switch" link set bridge up
for host in $(seq 0 "$workers"); do
    ip netns add "$id-$host"
    ip -n "$id-switch" link add "port$host" type veth peer name eth0 netns "$id-$host"
    ip -n "$id-switch" link set "port$host" master bridge up
    if [ "$fault" = ipv6 ]; then
        ip -n "$id-$host" addr add "$(address)/64" dev eth0 nodad
    else
        ip -n "$id-$host" addr add "$(address)/24" dev eth0
    fi
    ip -n "$id-$host" link set eth0 up
    ip -n "$id-$host" link set lo up
    tc -n "$id-switch" qdisc add dev "port$host" root tbf rate $bandwidth burst 512kb latency 100ms
    tc -n "$id-$host" qdisc add dev eth0 root handle 1: htb default 1
    tc -n "$id-$host" class add dev eth0 parent 1: classid 1:1 htb rate $bandwidth quantum 60000
    if [ "$fault" = unreachable ] && [ "$host" != 0 ]; then bridge -n "$id-switch" link set dev "port$host" isolated on; fi
done

# Steps so far.
steps() { cat "$work/$1/events.jsonl" 2>/dev/null | grep -c '"event":"step"' || true; }
until_step() { until [ "$(steps "$1")" -ge "$2" ]; do kill -0 "$coordinator" 2>/dev/null || return 0; sleep 0.02; done; }

# Runs a coordinator with `--exchange $2` and the workers, and the fault from step 8 on.
run() {
    local name=$1 exchange=$2 iterations=$3 host=0 head pids=()
    head=$(address)
    [ "$fault" = ipv6 ] && head="[$head]"
    ip netns exec "$id-0" "$ata" coordinator --listen "$head:7070" --insecure --min-workers "$workers" \
        --model "cnn:widths=16/16/128/1024" --task-batch 1 --budget 12 --iterations "$iterations" --eval-every 0 \
        --checkpoint-every never --out "$work/$name" --dashboard off --exchange "$exchange" > "$work/$name.log" 2>&1 & coordinator=$!
    for host in $(seq "$workers"); do
        ip netns exec "$id-$host" "$ata" worker --coordinator "http://$head:7070" --device cpu --threads 1 --name "worker-$host" \
            --task-time "const(20)" --time-unit 1ms > "$work/$name.worker-$host" 2>&1 & pids+=($!)
    done
    until_step "$name" 8
    case $fault in
        slow-way)
            tc -n "$id-1" class add dev eth0 parent 1: classid 1:2 htb rate "$slow" quantum 1514
            tc -n "$id-1" filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst 10.78.0.1/32 flowid 1:1
            tc -n "$id-1" filter add dev eth0 parent 1: protocol ip prio 2 u32 match ip dst 10.78.0.0/24 flowid 1:2 ;;
        stopped)
            # In another part of a step each time.
            sleep "0.$((RANDOM % 5))"
            kill -STOP "${pids[0]}"
            sleep 10
            kill -CONT "${pids[0]}" ;;
    esac
    local status=0
    wait $coordinator || status=$?
    wait "${pids[@]}" || true
    [ "$status" = 0 ] || { tail -5 "$work/$name.log" "$work/$name".worker-* >&2; exit 1; }
}

case $fault in
    stopped) run star star 60; run shards shards 60 ;;
    *) run shards shards 40 ;;
esac

python3 - "$fault" "$work" <<'PYTHON'
import json, os, statistics, sys
fault, work = sys.argv[1:]

def read(name):
    events = [json.loads(line) for line in open(f"{work}/{name}/events.jsonl")]
    steps = [event for event in events if event["event"] == "step"]
    times = [later["time_s"] - earlier["time_s"] for earlier, later in zip(steps, steps[1:])]
    usual = statistics.median(times[2:7])
    slow = [time - usual for time in times[7:] if time > 1.5 * usual + 0.2]
    names = {event["worker"]: event["name"] for event in events if event["event"] == "join"}
    end = steps[-1]["time_s"]
    harmed = [(event["event"], names.get(event["worker"])) for event in events
              if event["event"] in ("loss", "rest", "expulsion") and event.get("time_s", 0) < end]
    return {"usual": usual, "lost": sum(slow), "slow": len(slow), "late": statistics.median(times[-5:]), "harmed": harmed,
            "shards": [step.get("shards", 0) for step in steps], "first": max(times[:7])}

failed = []
runs = {name: read(name) for name in ("star", "shards") if os.path.exists(f"{work}/{name}")}
for name, run in runs.items():
    print(f"{name:6} {run['usual']:.2f} s a step, then {run['slow']} slow ones that lost {run['lost']:.1f} s, at last {run['late']:.2f} s a step; "
          f"members {run['shards']}; lost or resting: {run['harmed'] or 'nobody'}")
run = runs["shards"]
others = [harmed for harmed in run["harmed"] if not (fault == "stopped" and harmed[1] == "worker-1")]
if others:
    failed.append("healthy workers were lost, or got no work")
if fault == "slow-way" and (run["lost"] > 12 or run["late"] > 3 * run["usual"]):
    failed.append("more than one step suffered")
if fault == "stopped" and run["lost"] - runs["star"]["lost"] > 2.7:
    failed.append(f"{run['lost'] - runs['star']['lost']:.1f} s more than in a star")
if fault == "unreachable":
    print(f"slowest of the first steps: {run['first']:.2f} s")
    if run["first"] + run["lost"] > 3 * run["usual"] + 1:
        failed.append("steps were lost")
if fault == "ipv6" and max(run["shards"]) < 2:
    failed.append("no step in shards")
for why in failed:
    print("FAILED:", why)
sys.exit(bool(failed))
PYTHON
