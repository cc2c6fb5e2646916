"""What a disk gives to reads past the page cache, by the number of threads that read."""

from __future__ import annotations

import mmap
import os
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BLOCK = 1 << 20


def direct_bytes_per_second(files: Sequence[Path], threads: int, seconds: float = 1.0) -> float:
    """Bytes per second of O_DIRECT reads of 1 MiB at random places; ``OSError`` where the file system has none."""
    end = time.perf_counter() + seconds
    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        total = sum(pool.map(lambda seed: _read_until(files, seed, end), range(threads)))
    return total / (time.perf_counter() - start)


def _read_until(files: Sequence[Path], seed: int, end: float) -> int:
    choose, total = random.Random(seed), 0
    descriptors = [os.open(file, os.O_RDONLY | os.O_DIRECT) for file in files]
    blocks = [os.fstat(descriptor).st_size // BLOCK for descriptor in descriptors]
    buffer = mmap.mmap(-1, BLOCK)  # aligned to a page, as direct reads demand
    try:
        while time.perf_counter() < end:
            number = choose.randrange(len(files))
            total += os.preadv(descriptors[number], [buffer], choose.randrange(blocks[number]) * BLOCK)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return total
