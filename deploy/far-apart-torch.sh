#!/usr/bin/env bash
# Steps a second of ata.torch.Local on machines at home: four ranks in network namespaces on one switch. Needs root, `ip` and `tc`.
#
#     deploy/far-apart-torch.sh PYTHON [--width 2176] [--seconds 60] [--steps N|auto] [--no-overlap] [--bf16]
#
# Ranks of 20, 40, 80 and 160 ms a step, 93.75 steps a second at most, send at 20 Mbit a second and receive at 100. The model is a layer of
# 1024 inputs and so many outputs: 2176 are 8.9 MB. Prints the steps a second of the second half, and the length of its rounds.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 64; }
ranks=4 switch=ata-switch
clean() {
    for rank in $(seq $ranks); do ip netns del "ata-$rank" 2>/dev/null || true; done
    ip netns del $switch 2>/dev/null || true
}
trap clean EXIT
ip netns add $switch
ip -n $switch link add bridge type bridge
ip -n $switch link set bridge up
running=()
for rank in $(seq $ranks); do
    host="ata-$rank"
    ip netns add "$host"
    ip -n $switch link add "port$rank" type veth peer name eth0 netns "$host"
    ip -n $switch link set "port$rank" master bridge up
    ip -n "$host" addr add "10.77.0.$rank/24" dev eth0
    ip -n "$host" link set eth0 up
    ip -n "$host" link set lo up
    tc -n $switch qdisc add dev "port$rank" root tbf rate 100mbit burst 32kb latency 100ms
    tc -n "$host" qdisc add dev eth0 root tbf rate 20mbit burst 32kb latency 100ms
done
for rank in $(seq $ranks); do
    ip netns exec "ata-$rank" env GLOO_SOCKET_IFNAME=eth0 RANK=$((rank - 1)) "$1" - "${@:2}" << 'PYTHON' & running+=($!)
import argparse, os, time
import ata.torch, torch, torch.distributed as dist

MS = [20, 40, 80, 160]
parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=2176)
parser.add_argument("--seconds", type=float, default=60)
parser.add_argument("--steps", type=lambda text: int(text) if text.isdecimal() else text, default="auto")
parser.add_argument("--no-overlap", action="store_true")
parser.add_argument("--bf16", action="store_true")
options, rank = parser.parse_args(), int(os.environ["RANK"])
torch.set_num_threads(1)
dist.init_process_group("gloo", "tcp://10.77.0.1:29500", rank=rank, world_size=len(MS))
dtype = torch.bfloat16 if options.bf16 else None
local = ata.torch.Local(torch.nn.Linear(1024, options.width), steps=options.steps, overlap=not options.no_overlap, dtype=dtype)


def stream():
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        yield


rounds = [(time.monotonic(), 0)]
for _ in local.batches(stream()):
    if local.tasks > rounds[-1][1]:
        rounds.append((time.monotonic(), local.tasks))
    time.sleep(MS[rank] / 1e3)
if rank == 0:
    (began_s, before), (ended_s, after) = rounds[len(rounds) // 2], rounds[-1]
    lengths = sorted(later - earlier for (_, earlier), (_, later) in zip(rounds[len(rounds) // 2 :], rounds[len(rounds) // 2 + 1 :]))
    print(f"{(after - before) / (ended_s - began_s):.1f} steps a second, in rounds of {lengths[len(lengths) // 2]}")
dist.destroy_process_group()
PYTHON
done
wait "${running[@]}"
