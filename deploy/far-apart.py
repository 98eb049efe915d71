#!/usr/bin/env python3
"""Rounds of local steps on machines far apart, under faults: tasks and seconds per round, tasks per second, and the loss at the end.

    deploy/far-apart.py ATA [--data DIR] [--fault kill|slow|cut] [--latency MS] [--up MBIT] [--down MBIT] [--rounds 40]
        [--local-steps 240|auto|auto:M | --budget N|auto] [--reach LOSS] [--out DIR] [--flags="--lr 8e-4 …"]

A coordinator and four workers of 20, 40, 80 and 160 ms a task, 93.75 tasks a second at most, run on this machine. --latency delays all that they
send each other by so many milliseconds, half of a round trip; each worker's link has the rates --up and --down. With --local-steps auto, rounds
begin with 24 steps, and the run has as many tasks as with 240 in each. --budget is for gradients in place of local steps. --reach prints the
seconds after which the test loss was so low; the coordinator needs --eval-every then. --fault kill: in each round after the second, a worker
is killed at a random moment and started again. slow: from the middle on, the fastest takes ten times as long. cut: a worker is stopped for
60 s, after a quarter of the rounds. Needs Python 3.10.
"""

import argparse
import asyncio
import json
import math
import random
import shlex
import signal
import socket
import statistics
import sys
import tempfile
from pathlib import Path

TASK_MS = [20, 40, 80, 160]
CUT_S, SLOWER = 60, 10
# The rounds at the beginning that do not count.
FIRST = 4
# The budget of rounds that choose their number of steps, and the number with which others take as many in all.
BUDGET, STEPS = 24, 240
# Bytes that wait for a slow link, at most, and the seconds after which they are passed on.
QUEUED, PIECE_S = 1 << 16, 0.01


class Rate:
    """A direction of a link, which all of its connections share."""

    def __init__(self, mbit):
        self.bytes_per_s, self.free_s = mbit * 125e3, 0.0

    def sent_s(self, now_s, size):
        """The time by which so many bytes more have been sent."""
        self.free_s = max(now_s, self.free_s) + size / self.bytes_per_s
        return self.free_s


async def relay(reader, writer, rate, latency_s):
    """Passes on what arrives at this rate, so many seconds later."""
    pieces, clock = asyncio.Queue(), asyncio.get_running_loop()
    size = int(min(max(4096, rate.bytes_per_s * PIECE_S), QUEUED))

    async def read():
        piece = b"begin"
        while piece:
            try:
                piece = await reader.read(size)
            except ConnectionError:
                piece = b""
            sent_s = rate.sent_s(clock.time(), len(piece))
            pieces.put_nowait((sent_s + latency_s, piece))
            # A fast sender fills the queue of a slow link, and no more.
            await asyncio.sleep(max(0.0, sent_s - clock.time() - QUEUED / rate.bytes_per_s))

    reading = asyncio.create_task(read())
    try:
        while True:
            due_s, piece = await pieces.get()
            await asyncio.sleep(max(0.0, due_s - clock.time()))
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass
    reading.cancel()
    writer.close()


async def link(port, options):
    """A link to a port of this machine. Returns the port at which it begins."""
    up, down, latency_s = Rate(options.up), Rate(options.down), options.latency / 1e3

    async def opened(reader, writer):
        try:
            to = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionError:
            return writer.close()
        for end in (writer, to[1]):
            end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(relay(reader, to[1], up, latency_s), relay(to[0], writer, down, latency_s), return_exceptions=True)

    server = await asyncio.start_server(opened, "127.0.0.1", 0)
    return server.sockets[0].getsockname()[1]


class Cluster:
    def __init__(self, options, out):
        self.options, self.out, self.run = options, out, out / "run"
        steps = options.budget or options.local_steps
        self.steps = steps if isinstance(steps, int) else STEPS
        self.law = "; ".join(f"const({ms})" for ms in TASK_MS)
        if options.fault == "slow":
            before, after = (" ".join(map(str, [first, *TASK_MS[1:]])) for first in (TASK_MS[0], SLOWER * TASK_MS[0]))
            half = options.rounds // 2
            (out / "times").write_text("\n".join([before] * half + [after] * (options.rounds - half)))
            self.law = f"trace({out / 'times'}, wall)"

    async def start(self, name, *args):
        with open(self.out / f"{name}.log", "a") as log:
            return await asyncio.create_subprocess_exec(self.options.ata, *map(str, args), stdout=log, stderr=log)

    async def coordinator(self):
        ready, options = self.out / "ready", self.options
        flags = ("--listen", "127.0.0.1:0", "--insecure", "--ready-file", ready, "--out", self.run, "--dashboard", "off")
        iterations, steps = options.rounds, ("--local-steps", options.local_steps)
        if options.budget:
            steps = ("--budget", options.budget)
        elif options.local_steps != self.steps:
            iterations, steps = options.rounds * STEPS // BUDGET, (*steps, "--budget", BUDGET)
        rounds = (*steps, "--iterations", iterations, "--task-batch", 16, "--min-workers", len(TASK_MS))
        process = await self.start("coordinator", "coordinator", *flags, *rounds, "--data", options.data, *options.flags)
        while not ready.exists():
            if process.returncode is not None:
                sys.exit((self.out / "coordinator.log").read_text())
            await asyncio.sleep(0.05)
        port = int(json.loads(ready.read_text())["address"].rsplit(":", 1)[1])
        is_near = options.latency == 0.0 and options.up == options.down == math.inf
        self.ports = [port if is_near else await link(port, options) for _ in TASK_MS]
        return process

    async def worker(self, number):
        to = ("--coordinator", f"http://127.0.0.1:{self.ports[number - 1]}", "--device", "cpu", "--threads", 1)
        times = ("--number", number, "--workers", len(TASK_MS), "--task-time", self.law, "--time-unit", "1ms")
        return await self.start(f"worker-{number}", "worker", *to, "--name", f"worker-{number}", *times)

    def events(self, kind):
        journal = self.run / "events.jsonl"
        lines = journal.read_text().splitlines() if journal.exists() else []
        return [json.loads(line) for line in lines if f'"event":"{kind}"' in line]

    async def disturb(self, workers):
        """Injects the fault until it is cancelled."""
        chance, round_s = random.Random(1), self.steps / sum(1e3 / ms for ms in TASK_MS)
        last = 2 if self.options.fault == "kill" else self.options.rounds // 4
        while self.options.fault in ("kill", "cut"):
            while (now := len(self.events("step"))) <= last:
                await asyncio.sleep(0.05)
            last = now
            number = chance.randrange(len(TASK_MS)) if self.options.fault == "kill" else 1
            if self.options.fault == "cut":
                workers[number].send_signal(signal.SIGSTOP)
                await asyncio.sleep(CUT_S)
                workers[number].send_signal(signal.SIGCONT)
                return
            await asyncio.sleep(round_s * chance.random())
            workers[number].kill()
            await workers[number].wait()
            workers[number] = await self.worker(number + 1)


async def measure(options, out):
    cluster = Cluster(options, out)
    coordinator = await cluster.coordinator()
    workers = [await cluster.worker(number + 1) for number in range(len(TASK_MS))]
    faults = asyncio.create_task(cluster.disturb(workers))
    ended = await coordinator.wait()
    faults.cancel()
    for worker in workers:
        if worker.returncode is None:
            worker.send_signal(signal.SIGCONT)
            worker.terminate()
            await worker.wait()
    if ended != 0:
        sys.exit((out / "coordinator.log").read_text())
    steps = cluster.events("step")
    rounds = [after["time_s"] - before["time_s"] for before, after in zip(steps, steps[1:])][FIRST:]
    halves = rounds[: len(rounds) // 2], rounds[len(rounds) // 2 :]
    usual = " and ".join(f"{statistics.median(half):.2f}" for half in halves)
    tasks = sorted({step["tasks"] for step in steps})
    all_tasks, all_s = sum(step["tasks"] for step in steps[FIRST + 1 :]), sum(rounds)
    lost, (evaluation,) = len(cluster.events("loss")), cluster.events("evaluation")[-1:]
    if options.reach is not None:
        began = steps[0]["time_s"] - steps[0]["runtime_s"]
        losses = [(each["time_s"] - began, each["loss"]) for each in cluster.events("evaluation")]
        reached = [
            before_s + (after_s - before_s) * (before - options.reach) / (before - after)
            for (before_s, before), (after_s, after) in zip(losses, losses[1:])
            if after <= options.reach < before
        ]
        print(f"test loss {options.reach} after {reached[0]:.0f} s" if reached else f"no test loss above {options.reach} and then below it: {losses}")
    print(
        f"{options.fault or 'no fault'}: {len(steps)} rounds of {tasks[0]} to {tasks[-1]} tasks, {all_tasks / all_s:.1f} a second; "
        f"seconds per round: {usual} (medians of both halves), at most {max(rounds):.2f}; "
        f"{lost} times a worker was lost; test loss {evaluation['loss']:.4f}"
    )


def step_count(text):
    return text if text.startswith("auto") else int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ata")
    parser.add_argument("--data", default="synthetic")
    parser.add_argument("--fault", choices=["kill", "slow", "cut"])
    parser.add_argument("--latency", type=float, default=0.0, help="milliseconds each way")
    parser.add_argument("--up", type=float, default=math.inf, help="Mbit per second of each worker's link [default: unlimited]")
    parser.add_argument("--down", type=float, default=math.inf)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--local-steps", type=step_count, default=STEPS, metavar="N|auto|auto:M")
    parser.add_argument("--budget", type=step_count, metavar="N|auto", help="gradients of so many tasks a step, in place of local steps")
    parser.add_argument("--reach", type=float, metavar="LOSS", help="print when the test loss was so low")
    parser.add_argument("--flags", type=shlex.split, default="--eval-every 0", help="of the coordinator [default: %(default)s]")
    parser.add_argument("--out", type=Path, help="a new folder for the run and all logs [default: a temporary one]")
    options = parser.parse_args()
    if options.rounds < FIRST + 4:
        parser.error(f"--rounds: expected at least {FIRST + 4}")
    with tempfile.TemporaryDirectory() as temporary:
        out = (options.out or Path(temporary)).resolve()
        out.mkdir(parents=True, exist_ok=True)
        asyncio.run(measure(options, out))


if __name__ == "__main__":
    main()
