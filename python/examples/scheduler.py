"""Three threads of unequal speed share 60 tasks per step. Run: python examples/scheduler.py"""

import time
from concurrent.futures import ThreadPoolExecutor

import ata

SECONDS_PER_TASK = [0.0005, 0.001, 0.003]


def compute(worker: int, tasks: int) -> float:
    """Computes a share, here by sleeping, and returns how long that took."""
    began = time.perf_counter()
    for _ in range(tasks):
        time.sleep(SECONDS_PER_TASK[worker])
    return time.perf_counter() - began


def main() -> None:
    workers = range(len(SECONDS_PER_TASK))
    scheduler = ata.Scheduler(len(workers), budget=60)
    with ThreadPoolExecutor() as pool:
        for step in range(1, 11):
            began = time.perf_counter()
            shares = scheduler.next()
            times = list(pool.map(compute, workers, shares))
            for worker in workers:
                if shares[worker]:
                    scheduler.observe(worker, shares[worker], times[worker])
            print(f"step {step:2}: shares {shares}, {time.perf_counter() - began:.3f} s")


if __name__ == "__main__":
    main()
