"""The order of samples, written from proto/ata/v1/coordinator.proto alone."""

from __future__ import annotations

import struct
from collections.abc import Iterator


def chacha8(key: bytes, stream: int) -> Iterator[int]:
    """The 32-bit words of ChaCha with 8 rounds."""
    counter = 0
    while True:
        begin = list(struct.unpack("<16I", b"expand 32-byte k" + key + struct.pack("<QQ", counter, stream)))
        words = begin.copy()
        for _ in range(4):
            for a, b, c, d in ("048c", "159d", "26ae", "37bf", "05af", "16bc", "278d", "349e"):
                a, b, c, d = (int(index, 16) for index in (a, b, c, d))
                for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                    words[x] = (words[x] + words[y]) & 0xFFFFFFFF
                    mixed = words[z] ^ words[x]
                    words[z] = (mixed << turn | mixed >> 32 - turn) & 0xFFFFFFFF
        yield from ((word + first) & 0xFFFFFFFF for word, first in zip(words, begin))
        counter += 1


def permutation(seed: int, epoch: int, count: int) -> list[int]:
    words = chacha8(struct.pack("<QB23x", seed, 1), epoch)
    table, number, left = list(range(count)), 0, 0
    for p in range(1, count):
        m = p + 1
        if left == 0:
            product = m
            while product * (m + left + 1) < 2**32:
                left += 1
                product *= m + left
            left += 1
            high, low = divmod(next(words) * product, 2**32)
            carries = low > 2**32 - product and low + (next(words) * product >> 32) >= 2**32
            number = high + carries
        r, left = number % m, left - 1
        number //= m
        table[p], table[r] = table[r], table[p]
    return table
