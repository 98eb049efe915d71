#!/usr/bin/env python3
"""Rounds of local steps on machines far apart, under faults: seconds per round, and the loss at the end.

    deploy/far-apart.py ATA [--data DIR] [--fault kill|slow|cut] [--latency MS] [--rounds 40] [--local-steps 240] [--out DIR]

A coordinator and four workers of 20, 40, 80 and 160 ms a task run on this machine. --latency delays all that they send each other by so many
milliseconds, half of a round trip. --fault kill: in each round after the second, a worker is killed at a random moment and started again. slow:
from the middle on, the fastest takes ten times as long. cut: a worker is stopped for 60 s, after a quarter of the rounds. Needs Python 3.10.
"""

import argparse
import asyncio
import json
import random
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


async def relay(reader, writer, latency_s):
    """Passes on what arrives, so many seconds later."""
    pieces, clock = asyncio.Queue(256), asyncio.get_running_loop()

    async def read():
        piece = b"begin"
        while piece:
            piece = await reader.read(1 << 16)
            await pieces.put((clock.time() + latency_s, piece))

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


async def link(port, latency_s):
    """A link to a port of this machine. Returns the port at which it begins."""

    async def opened(reader, writer):
        try:
            to = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionError:
            return writer.close()
        for end in (writer, to[1]):
            end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(relay(reader, to[1], latency_s), relay(to[0], writer, latency_s), return_exceptions=True)

    server = await asyncio.start_server(opened, "127.0.0.1", 0)
    return server.sockets[0].getsockname()[1]


class Cluster:
    def __init__(self, options, out):
        self.options, self.out, self.run = options, out, out / "run"
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
        rounds = ("--local-steps", options.local_steps, "--iterations", options.rounds, "--task-batch", 16, "--min-workers", len(TASK_MS))
        process = await self.start("coordinator", "coordinator", *flags, *rounds, "--data", options.data, "--eval-every", 0)
        while not ready.exists():
            if process.returncode is not None:
                sys.exit((self.out / "coordinator.log").read_text())
            await asyncio.sleep(0.05)
        port = int(json.loads(ready.read_text())["address"].rsplit(":", 1)[1])
        self.ports = [await link(port, options.latency / 1e3) if options.latency else port for _ in TASK_MS]
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
        chance, round_s = random.Random(1), self.options.local_steps / sum(1e3 / ms for ms in TASK_MS)
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
    tasks = {step["tasks"] for step in steps}
    lost, (evaluation,) = len(cluster.events("loss")), cluster.events("evaluation")[-1:]
    print(
        f"{options.fault or 'no fault'}: {len(steps)} rounds of {tasks} tasks; seconds: {usual} (medians of both halves), at most {max(rounds):.2f}; "
        f"{lost} times a worker was lost; test loss {evaluation['loss']:.4f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ata")
    parser.add_argument("--data", default="synthetic")
    parser.add_argument("--fault", choices=["kill", "slow", "cut"])
    parser.add_argument("--latency", type=float, default=0.0, help="milliseconds each way")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--local-steps", type=int, default=240)
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
