"""Measures how regular a worker's heartbeats are while it computes: in Rust, and in Python.

    pip install torch numpy ata
    python tools/pytorch/heartbeats.py [--seconds 60] [--timeout-ms 400]

One worker of one thread trains ata's CNN on random images: the built-in one, then the same network in PyTorch. It reaches its
coordinator through a proxy, which notes when a heartbeat passes. A worker sends one in a fourth of `--timeout-ms`; after four without
one the coordinator gives it up. Prints the median, the 99th percentile and the maximum of the intervals.
"""

import argparse
import os
import socket
import statistics
import sys
import threading
import time

import torch
from torch.nn import functional as F

import ata
import ata.torch
from cnn import Cnn
from ddp import Ata
from fleet import Pairs

TASK_BATCH = 16
# A data frame of HTTP/2 with a heartbeat of a worker that has work: field 3 of WorkerMessage, an empty message.
DATA, HEARTBEAT = 0, bytes([0, 0, 0, 0, 2, 0x1A, 0])
PREFACE = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")


class Proxy:
    """Passes on connections, and notes when heartbeats pass."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.target = host, int(port)
        self.heartbeats = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            worker, _ = self.listener.accept()
            coordinator = socket.create_connection(self.target)
            for source, sink, note in [(worker, coordinator, Frames(self.heartbeats).note), (coordinator, worker, len)]:
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=forward, args=(source, sink, note), daemon=True).start()


def forward(source, sink, note):
    try:
        while data := source.recv(1 << 16):
            note(data)
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        sink.close()


class Frames:
    """Reads the frames of a connection."""

    def __init__(self, heartbeats):
        self.heartbeats, self.buffer, self.skip = heartbeats, bytearray(), PREFACE

    def note(self, data):
        now = time.perf_counter()
        self.buffer += data
        while True:
            skipped = min(self.skip, len(self.buffer))
            del self.buffer[:skipped]
            self.skip -= skipped
            # Frames with vectors are skipped without being kept.
            if self.skip or len(self.buffer) < 9:
                return
            size, kind = int.from_bytes(self.buffer[:3], "big"), self.buffer[3]
            if size == len(HEARTBEAT) and kind == DATA:
                if len(self.buffer) < 9 + size:
                    return
                if self.buffer[9 : 9 + size] == HEARTBEAT:
                    self.heartbeats.append(now)
            self.skip = 9 + size


def measure(name, program, model, options):
    limits = ("--budget", 16, "--task-batch", TASK_BATCH, "--iterations", 1_000_000, "--max-runtime-s", options.seconds)
    flags = ("--eval-every", 0, "--checkpoint-every", "never", "--heartbeat-timeout-ms", options.timeout_ms, *model)
    with Ata(*program) as cluster:
        cluster.start("coordinator", "--listen", "127.0.0.1:0", "--out", cluster.run, "--ready-file", cluster.ready, *limits, *flags)
        proxy = Proxy(cluster.address())
        url = f"http://127.0.0.1:{proxy.listener.getsockname()[1]}"
        cluster.start("worker", "--coordinator", url, "--device", "cpu", "--threads", 1)
        cluster.finish()
        busy = [float(row["total_worker_time_s"]) for row in cluster.iterations()]
        joins = sum(event["event"] == "join" for event in cluster.events())
    gaps = [1e3 * (after - before) for before, after in zip(proxy.heartbeats, proxy.heartbeats[1:])]
    cuts = statistics.quantiles(gaps, n=100)
    print(
        f"{name:8} {len(gaps)} intervals: median {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, longest {max(gaps):.1f} ms; "
        f"{len(busy)} iterations, joined {joins} time(s)"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--timeout-ms", type=int, default=400)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    measure("Rust", [sys.executable, "-m", "ata"], ("--model", "cnn"), options)
    measure("Python", [sys.executable, __file__], (), options)


if __name__ == "__main__":
    if sys.argv[1:2] in (["coordinator"], ["worker"]):
        torch.manual_seed(0)
        problem = ata.torch.Problem(Cnn(), Pairs(), F.cross_entropy, collate=lambda batch: batch, device="cpu")
        ata.main(problem)
    main()
