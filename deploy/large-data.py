#!/usr/bin/env python3
"""Trains on a data set that no worker can keep: how much disk and memory the workers take, and whether their steps wait for data.

    deploy/large-data.py ATA [--gb 12] [--iterations 10000]

ATA: the program. Writes images of 32 × 32 pixels in shards of 32 MB, most of them black, as a sparse file, so that its disk needs little
room. Two workers, each with a cache of 1 GB of its own, fetch shards from the coordinator on this machine. In the middle, all shards in one
of the caches are damaged. Then as many iterations with the data at hand, for comparison, and a few with one and with four workers: the parameters
have to be the same bits. Needs 3 GB of disk, and nothing else to run meanwhile.
"""

import argparse
import hashlib
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

SIZE, CLASSES = 32, 10
RECORD = 2 + 3 * SIZE * SIZE
SHARD = 32_000_000 // RECORD
# Iterations that are not counted: a minute.
FIRST_S = 60
FEW = 200
# What the journal's lines about steps have.
STEP = '"event":"step"'


def header(magic, images):
    names = "".join(f"class {number}\n" for number in range(CLASSES)).encode()
    numbers = struct.pack("<IIIIQ6f", 1, SIZE, CLASSES, len(names), images, *[0.5] * 3, *[0.25] * 3)
    return magic + numbers + names


def write_data(folder, gigabytes):
    """A packed file whose shards differ in one record each, and its index."""
    shards = max(16, round(gigabytes * 1e9 / (SHARD * RECORD)))
    for name, count in (("train", shards), ("test", 1)):
        start = header(b"ATA-IMGS", count * SHARD)
        digests = bytearray()
        rest = bytes((SHARD - 1) * RECORD)
        with open(folder / f"{name}.packed", "wb") as packed:
            packed.truncate(len(start) + count * SHARD * RECORD)
            packed.write(start)
            for number in range(count):
                image = random.Random(number).randbytes(RECORD - 2)
                record = struct.pack("<H", number % CLASSES) + image
                packed.seek(len(start) + number * SHARD * RECORD)
                packed.write(record)
                digest = hashlib.sha256(record)
                digest.update(rest)
                digests += digest.digest()
        prefix = b"ATA-SHDS" + struct.pack("<IIQ", 1, 0, SHARD)
        (folder / f"{name}.shards").write_bytes(prefix + start + digests)
    return shards


class Process(subprocess.Popen):
    """A process that is killed when it is no longer needed."""

    def __init__(self, log, arguments, **environment):
        with open(log, "w") as file:
            super().__init__(arguments, stdout=file, stderr=subprocess.STDOUT, env=os.environ | environment)
        self.log, self.peak_kb = log, 0

    def look(self):
        """Notes the most memory that the process has had."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return
        self.peak_kb = max([self.peak_kb] + [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")])


def disk_bytes(folder):
    def allocated(file):
        try:
            return file.stat().st_blocks * 512
        except OSError:
            return 0

    return sum(map(allocated, folder.rglob("*")))


def damage(cache):
    """Changes a byte of each shard in a cache."""
    shards = [file for file in cache.glob("shards/*") if len(file.name) == 64]
    for file in shards:
        with open(file, "r+b") as shard:
            shard.seek(5)
            shard.write(b"damaged")
    return len(shards)


def train(ata, folder, name, workers, iterations, own_data=False, damaged=False):
    run = folder / name
    ready = folder / f"{name}.ready"
    flags = ["--listen", "127.0.0.1:0", "--insecure", "--dashboard", "off", "--data", folder / "data", "--out", run]
    flags += ["--model", "cnn", "--task-batch", 16, "--iterations", iterations, "--eval-every", 0, "--checkpoint-every", "never", "--seed", 1]
    flags += ["--min-workers", workers, "--ready-file", ready, "--evaluate-on", "head"]
    coordinator = Process(folder / f"{name}.log", [ata, "coordinator", *map(str, flags)])
    while not (ready.exists() and ready.read_text().strip()):
        if coordinator.poll() is not None:
            sys.exit(coordinator.log.read_text())
        time.sleep(0.05)
    url = "http://" + json.loads(ready.read_text())["address"]
    processes, caches = [], []
    for number in range(workers):
        caches.append(folder / f"cache-{name}-{number}")
        command = [ata, "worker", "--coordinator", url, "--name", f"worker-{number}", "--device", "cpu", "--threads", "1"]
        command += ["--data", str(folder / "data")] if own_data else ["--cache-gb", "1"]
        environment = {"ATA_CACHE_DIR": str(caches[-1]), "ATA_LOG": "warn,ata_worker::shard_cache=debug", "ATA_LOG_FORMAT": "json"}
        processes.append(Process(folder / f"{name}-{number}.log", command, **environment))
    peak_disk, damaged_shards = [0] * workers, 0
    journal, done = None, 0
    while coordinator.poll() is None:
        time.sleep(0.5)
        for number, (process, cache) in enumerate(zip(processes, caches)):
            process.look()
            peak_disk[number] = max(peak_disk[number], disk_bytes(cache))
        coordinator.look()
        for process in processes:
            if process.poll():
                coordinator.kill()
                sys.exit(process.log.read_text())
        if journal is None and (run / "events.jsonl").exists():
            journal = open(run / "events.jsonl")
        if damaged and not damaged_shards and journal:
            # Only what is new, since reading takes time, too.
            done += journal.read().count(STEP)
            if done > iterations // 2:
                damaged_shards = damage(caches[0])
    if coordinator.returncode:
        sys.exit(coordinator.log.read_text())
    for process in processes:
        process.wait()
    return {
        "steps": steps(run),
        "waited_s": [waited_s(process.log) for process in processes],
        "found_damaged": sum(process.log.read_text().count("cached shard is damaged") for process in processes),
        "sha256": json.loads((run / "summary.json").read_text())["parameters_sha256"],
        "memory_mb": [process.peak_kb // 1024 for process in processes],
        "coordinator_mb": coordinator.peak_kb // 1024,
        "disk_mb": [peak // 1_000_000 for peak in peak_disk],
        "damaged": damaged_shards,
    }


def steps(run):
    """When each step ended."""
    lines = (run / "events.jsonl").read_text().splitlines()
    return [json.loads(line)["time_s"] for line in lines if STEP in line]


def waited_s(log):
    """How long a worker waited for shards after the first minute."""
    waits = [line for line in map(json.loads, log.read_text().splitlines()) if line["message"] == "waited for a shard"]
    at = [datetime.fromisoformat(wait["timestamp"]) for wait in waits]
    return sum(wait["seconds"] for wait, time in zip(waits, at) if (time - at[0]).total_seconds() > FIRST_S)


def seconds_per_step(times):
    """After the first minute, or after the first fifth if the run is short."""
    begin = next((number for number, at in enumerate(times) if at > FIRST_S), len(times))
    begin = min(begin, len(times) // 2)
    return (times[-1] - times[begin]) / (len(times) - 1 - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ata", type=lambda text: str(Path(text).resolve()))
    parser.add_argument("--gb", type=float, default=12)
    parser.add_argument("--iterations", type=int, default=10000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        shards = write_data(folder / "data", options.gb)
        size = (folder / "data/train.packed").stat().st_size
        print(f"{size / 1e9:.1f} GB in {shards} shards, {shards * SHARD} images; two workers with caches of 1 GB")
        fetched = train(options.ata, folder, "fetched", 2, options.iterations, damaged=True)
        at_hand = train(options.ata, folder, "at-hand", 2, options.iterations, own_data=True)
        for label, run in (("shards fetched", fetched), ("data at hand", at_hand)):
            memory = ", ".join(f"{megabytes} MB" for megabytes in run["memory_mb"])
            disk = ", ".join(f"{megabytes} MB" for megabytes in run["disk_mb"])
            print(
                f"{label:15} {seconds_per_step(run['steps']):.4f} s per step after the first minute; most memory of each worker: {memory};"
                f" coordinator: {run['coordinator_mb']} MB; most disk of each cache: {disk}"
            )
        print(f"ratio: {seconds_per_step(fetched['steps']) / seconds_per_step(at_hand['steps']):.3f}")
        counted_s = fetched["steps"][-1] - FIRST_S
        for number, waited in enumerate(fetched["waited_s"]):
            print(f"worker {number} waited for shards {waited:.2f} s, {100 * waited / counted_s:.2f} % of the time after the first minute")
        print(f"{fetched['damaged']} shards were damaged, and {fetched['found_damaged']} of them were needed again, found damaged and fetched")
        few = {workers: train(options.ata, folder, f"few-{workers}", workers, FEW)["sha256"] for workers in (1, 2, 4)}
        print(f"parameters after {options.iterations}: {fetched['sha256'][:16]}, with the data at hand {at_hand['sha256'][:16]}")
        print(f"after {FEW}: " + ", ".join(f"{workers} workers {sha256[:16]}" for workers, sha256 in few.items()))
        if fetched["sha256"] != at_hand["sha256"] or len(set(few.values())) > 1:
            sys.exit("the parameters differ")


if __name__ == "__main__":
    main()
