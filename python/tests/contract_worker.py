"""A worker that is written from proto/ata/v1/coordinator.proto alone, with numpy and grpcio, and shares no code with ata."""

from __future__ import annotations

import math
import queue
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import grpc
import numpy as np
from contract_order import permutation

# The package `ata` that is installed would hide the folder `ata` of the contract.
sys.path.append(str(Path(__file__).parents[2] / "proto" / "ata" / "v1"))
pb, services = grpc.protos_and_services("coordinator.proto")

CHUNK, BLOCK = 32_768, 256


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def crc_entry(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


CRC_TABLE = [crc_entry(value) for value in range(256)]


def largest_float(integer: int) -> np.float32:
    """The largest f32 that is not above an integer."""
    nearest = np.float32(integer)
    return nearest if int(nearest) <= integer else np.nextafter(nearest, np.float32(0))


def encode_sums(sums: np.ndarray, is_compact: bool) -> bytes:
    if not is_compact:
        return sums.astype("<i4").tobytes()
    encoded = b""
    for start in range(0, len(sums), BLOCK):
        block = np.zeros(BLOCK, np.int32)
        block[: len(sums) - start] = sums[start : start + BLOCK]
        bits = int(np.max(block ^ block >> 31)).bit_length() + 1
        width = next(width for width in (8, 12, 16, 20, 32) if width >= bits) if block.any() else 0
        encoded += bytes([width])
        if width:
            encoded += block.astype({8: "u1", 12: "u1", 16: "<u2", 20: "<u2", 32: "<i4"}[width]).tobytes()
        if width in (12, 20):
            upper = block >> width - 4 & 15
            encoded += (upper[:128] | upper[128:] << 4).astype("u1").tobytes()
    return encoded


def apply_differences(held: np.ndarray, data: bytes) -> None:
    for start in range(0, len(held), BLOCK):
        block = held[start : start + BLOCK]
        scale = struct.unpack_from("b", data)[0]
        length = {-128: 0, -127: 4 * len(block)}.get(scale, len(block))
        content, data = data[1 : 1 + length], data[1 + length :]
        if scale == -127:
            block[:] = np.frombuffer(content, "<f4")
        elif scale != -128:
            block += np.frombuffer(content, "i1").astype(np.float32) * np.float32(2.0**scale)
    assert not data, "bytes follow the last block"


class Sets:
    """Sets of parameters as they arrive: parts become whole vectors."""

    def __init__(self, count: int) -> None:
        self.held, self.iteration = np.zeros(count, np.float32), 0

    def read(self, parts: Iterator) -> Iterator[tuple[int, np.ndarray]]:
        for part in parts:
            header = part.header
            assert part.WhichOneof("kind") == "header" and header.base in (0, self.iteration) and header.stride == 0
            for at in range(header.chunks):
                chunk = next(parts).chunk
                assert crc32c(chunk.data) == chunk.crc32c
                values = self.held[at * CHUNK : (at + 1) * CHUNK]
                if header.base:
                    apply_differences(values, chunk.data)
                else:
                    values[:] = np.frombuffer(chunk.data, "<f4")
            self.iteration = header.iteration
            yield header.iteration, self.held.copy()


class Worker:
    """One session. `loss_and_gradient` takes the flat parameters and the numbers of samples."""

    def __init__(self, address: str, name: str, loss_and_gradient: Callable, samples: dict[str, int]) -> None:
        self.compute, self.samples = loss_and_gradient, samples
        self.events: queue.Queue = queue.Queue()
        self.outgoing: queue.Queue = queue.Queue()
        # Without this, both would share one connection.
        options = [("grpc.use_local_subchannel_pool", 1)]
        control, self.bulk = (grpc.insecure_channel(address, options) for _ in range(2))
        self.say(hello=pb.Hello(protocol=pb.PROTOCOL_CURRENT, name=name, instance=time.monotonic_ns(), device="numpy"))
        incoming = services.CoordinatorStub(control).Session(iter(self.outgoing.get, None))
        self.welcome = next(incoming).welcome
        self.run = self.welcome.run
        assert sum(self.run.tensors) == self.run.parameters
        self.transfers = services.TransfersStub(self.bulk)
        self.orders: dict[int, list[int]] = {}
        self.units: dict[int, tuple[list[int], bytes]] = {}
        self.iteration, self.parameters = 0, np.zeros(0, np.float32)
        self.leases: list = []
        self.asked: list = []
        self.kept: dict[int, np.ndarray] = {}
        self.receipts: list[Future] = []
        self.measured = 0
        self.listen("message", incoming)
        request = pb.ParametersRequest(session=self.welcome.session)
        self.listen("set", Sets(self.run.parameters).read(self.transfers.Parameters(request)))
        self.say(ready=pb.Ready())

    def say(self, **kind) -> None:
        self.outgoing.put(pb.WorkerMessage(**kind))

    def listen(self, kind: str, source: Iterator) -> None:
        def forward() -> None:
            try:
                for event in source:
                    self.events.put((kind, event))
            except grpc.RpcError as error:
                self.events.put(("over", error))

        threading.Thread(target=forward, daemon=True).start()

    def work(self) -> int:
        """Works until the coordinator says farewell, and returns its reason."""
        last = 0.0
        while True:
            if time.monotonic() - last >= self.welcome.heartbeat_interval_ms / 1000:
                self.say(heartbeat=pb.Heartbeat())
                last = time.monotonic()
            try:
                kind, event = self.events.get(timeout=self.welcome.heartbeat_interval_ms / 2000)
            except queue.Empty:
                continue
            if kind == "set":
                (self.iteration, self.parameters), self.kept = event, {}
            elif kind == "message":
                if event.WhichOneof("kind") == "farewell":
                    self.outgoing.put(None)
                    return event.farewell.reason
                self.take(event)
            # Calls may end before the farewell is read.
            self.compute_leases()
            self.send_vectors()

    def take(self, message) -> None:
        match message.WhichOneof("kind"):
            case "units":
                units = (list(message.units.exponents), message.units.shifts)
                if self.units.get(message.units.iteration, units) != units:
                    self.kept = {task: np.zeros(0) for task in self.kept}
                self.units = {message.units.iteration: units}
            case "assign":
                self.leases += message.assign.leases
                for lease in message.assign.leases:
                    if lease.vector:
                        tasks = [lease.first_task, lease.tasks]
                        self.asked.append(pb.VectorRequest(id=lease.vector, iteration=lease.iteration, tasks=tasks))
            case "cancel":
                self.leases = [lease for lease in self.leases if lease.lease not in message.cancel.leases]
            case "collect":
                self.asked = [asked for asked in self.asked if asked.id not in message.collect.withdrawn]
                self.asked += message.collect.requests
            case "evaluate":
                self.evaluate(message.evaluate)

    def task(self, index: int) -> tuple[float, np.ndarray]:
        """The loss and the gradient of a task of the iteration."""
        size, count = self.run.task_batch, self.samples["train"]
        first = ((self.iteration - 1) * self.run.budget + index) * size
        samples = []
        for number in range(first, first + size):
            epoch, at = divmod(number, count)
            if epoch not in self.orders:
                self.orders[epoch] = permutation(self.run.seed, epoch, count)
            samples.append(self.orders[epoch][at])
        loss, gradient = self.compute(self.parameters, samples)
        return loss, np.asarray(gradient, np.float32)

    def of_tensors(self, gradient: np.ndarray) -> np.ndarray:
        """The largest magnitude in each tensor."""
        ends = np.cumsum(self.run.tensors)
        return np.array([np.abs(part).max() for part in np.split(gradient, ends[:-1].astype(int))], np.float32)

    def limit(self) -> int:
        return max(1, (2**31 - 1) // self.run.budget)

    def current_units(self) -> tuple[list[int], bytes]:
        if self.iteration not in self.units:
            maxima = self.of_tensors(self.task(0)[1])
            ratios = [256 * float(most or maxima.max() or 1) / self.limit() for most in maxima]
            parts = [math.frexp(ratio) for ratio in ratios]
            exponents = [exponent - (fraction == 0.5) for fraction, exponent in parts]
            self.units = {self.iteration: ([min(max(exponent, -126), 126) for exponent in exponents], b"")}
        return self.units[self.iteration]

    def exponents(self) -> np.ndarray:
        """The exponent of the unit of each value."""
        exponents, shifts = self.current_units()
        block = BLOCK
        while block * 2**20 < self.run.parameters:
            block *= 2
        halves = np.frombuffer(shifts, np.uint8)
        shifts_of_blocks = np.stack([halves & 15, halves >> 4], axis=1).ravel().astype(int)
        spread = np.repeat(shifts_of_blocks, block)[: self.run.parameters] if shifts else 0
        return np.repeat(exponents, np.array(self.run.tensors, int)) - spread

    def compute_leases(self) -> None:
        for lease in [lease for lease in self.leases if lease.iteration == self.iteration]:
            self.leases.remove(lease)
            times, losses = [], []
            for index in range(lease.first_task, lease.first_task + lease.tasks):
                began = time.monotonic()
                loss, self.kept[index] = self.task(index)
                times.append(time.monotonic() - began)
                losses.append(loss)
            computed = pb.ComputedLease(lease=lease.lease, busy_s=times, losses=losses)
            self.say(progress=pb.Progress(leases=[computed]))

    def send_vectors(self) -> None:
        for asked in [asked for asked in self.asked if asked.iteration == self.iteration]:
            tasks, end = [], 0
            for gap, count in zip(asked.tasks[::2], asked.tasks[1::2]):
                tasks += range(end + gap, end + gap + count)
                end += gap + count
            if all(task in self.kept for task in tasks):
                self.asked.remove(asked)
                self.receipts.append(self.transfers.SubmitGradient.future(self.parts(asked, tasks)))

    def parts(self, asked, tasks: list[int]) -> Iterator:
        is_compact = self.run.format == pb.WIRE_FORMAT_COMPACT
        gradients = np.stack([self.kept[task] for task in tasks])
        scaled = gradients * np.exp2(-self.exponents()).astype(np.float32)
        limit = largest_float(self.limit())
        sums = np.rint(np.clip(scaled, -limit, limit).astype(np.float64)).sum(axis=0).astype(np.int32)
        exponents, shifts = self.current_units()
        header = pb.GradientHeader(
            session=self.welcome.session,
            vector=asked.id,
            maxima=np.max([self.of_tensors(gradient) for gradient in gradients], axis=0).astype("<f4").tobytes(),
            units=exponents,
            saturated=int((np.abs(scaled) > limit).sum()),
            units_crc32c=crc32c(np.array(exponents, "<i2").tobytes() + shifts),
            vanished=int(((gradients != 0) & (np.abs(scaled) <= 0.5)).sum()) if is_compact else 0,
        )
        parts = [pb.GradientPart(header=header)]
        for start in range(asked.first_chunk * CHUNK, len(sums), CHUNK):
            data = encode_sums(sums[start : start + CHUNK], is_compact)
            parts.append(pb.GradientPart(chunk=pb.Chunk(crc32c=crc32c(data), data=data)))
        return iter(parts)

    def evaluate(self, asked) -> None:
        request = pb.ParametersRequest(session=self.welcome.session, evaluated_step=asked.step)
        call = self.transfers.Parameters(request)
        try:
            _, parameters = next(Sets(self.run.parameters).read(call))
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.NOT_FOUND, error
            return
        call.cancel()
        size, count = 64, self.samples["test"]
        for batch in asked.batches:
            loss, _ = self.compute(parameters, range(batch * size, min(count, (batch + 1) * size)))
            figures = {"samples": count, "batch_samples": size, "loss": loss}
            self.say(measured=pb.Measured(step=asked.step, batch=batch, **figures))
            self.measured += 1

    def accepted(self) -> int:
        """How many of its vectors counted."""
        receipts = [receipt.result() for receipt in self.receipts if receipt.done() and not receipt.exception()]
        return sum(receipt.verdict == pb.GradientReceipt.VERDICT_ACCEPTED for receipt in receipts)
