"""Protects the miss copy and the greedy head: exactly what was listed is brought, and argmax is argmax."""

from __future__ import annotations

import pytest
import torch

from seqmoe.core.control import MISSES_BEGUN, MISSES_DONE, control_words
from seqmoe.runtime.kernels import copy_misses, greedy
from seqmoe.runtime.kernels.copy_misses import PoolParts
from seqmoe.runtime.kernels.table import DeviceTable, Misses

KEYS, SLOTS = 12, 5


def pools():
    """Three parts: one larger than a tile, a small one, and one of a single access."""
    shapes = {"gate_up": (torch.bfloat16, (70, 128)), "scale": (torch.float32, (3, 4)), "bias": (torch.bfloat16, (8,))}
    host, device = [], []
    for dtype, shape in shapes.values():
        host.append(torch.randn(KEYS, *shape).to(dtype))
        device.append(torch.full((SLOTS, *shape), float("nan"), dtype=dtype))
    return host, device


def parts_of(host, device):
    """Where pools that lie in one piece have each expert's parts and slot 0's."""
    sizes = tuple(part[0].numel() * part.element_size() for part in device)
    keys = torch.arange(KEYS, dtype=torch.int64)
    source = torch.stack([part.data_ptr() + keys * size for part, size in zip(host, sizes, strict=True)])
    return PoolParts(source, torch.tensor([part.data_ptr() for part in device]), sizes)


@pytest.mark.parametrize("programs", [1, 3, 64])
@pytest.mark.parametrize("listed", [[], [(7, 2)], [(0, 4), (11, 0), (5, 3)]])
def test_what_is_listed_is_copied_and_nothing_else(programs, listed):
    torch.manual_seed(programs)
    host, device = pools()
    table, words = DeviceTable.empty(2, 6, SLOTS), torch.zeros(control_words(8), dtype=torch.int64)
    misses = Misses.of(4)
    misses.key.fill_(9), misses.slot.fill_(1)
    for index, (key, slot) in enumerate(listed):
        misses.key[index], misses.slot[index] = key, slot
    misses.count[0] = len(listed)
    parts = parts_of(host, device)
    for layers in (1, 2):
        copy_misses.launch(words, table, misses, parts, programs)
        told = layers if listed else 0
        assert [int(words[MISSES_BEGUN]), int(words[MISSES_DONE])] == [told, told]
        assert int(misses.finished) == 0
    for source, target in zip(host, device, strict=True):
        for key, slot in listed:
            assert torch.equal(target[slot], source[key])
        rest = [slot for slot in range(SLOTS) if slot not in {slot for _, slot in listed}]
        assert target[rest].isnan().all()


def test_a_host_pool_may_lie_in_chunks():
    chunks = [torch.arange(8, dtype=torch.float32).reshape(2, 4) + 100 * index for index in range(3)]
    pool = torch.zeros(3, 4)
    source = torch.tensor([[chunk.data_ptr() + row * 16 for chunk in chunks for row in range(2)]])
    parts = PoolParts(source, torch.tensor([pool.data_ptr()]), (16,))
    table, words, misses = DeviceTable.empty(1, 6, 3), torch.zeros(control_words(8), dtype=torch.int64), Misses.of(2)
    misses.key[:], misses.slot[:], misses.count[0] = torch.tensor([5, 2]), torch.tensor([0, 2]), 2
    copy_misses.launch(words, table, misses, parts, 2)
    assert torch.equal(pool, torch.stack([chunks[2][1], torch.zeros(4), chunks[1][0]]))


@pytest.mark.parametrize(
    ("parts", "targets", "sizes", "message"),
    [(1, 1, (12,), "multiple of 16"), (2, 1, (16,), "source"), (1, 2, (16,), "target"), (1, 1, (16, 16), "source")],
)
def test_parts_that_do_not_fit_are_refused(parts, targets, sizes, message):
    source, target = (torch.zeros(shape, dtype=torch.int64) for shape in ((parts, 4), (targets,)))
    with pytest.raises(ValueError, match=message):
        PoolParts(source, target, sizes)


@pytest.mark.parametrize("vocabulary", [7, 4096, 9001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_greedy_tokens_are_the_first_of_the_greatest(vocabulary, dtype):
    torch.manual_seed(vocabulary)
    logits = torch.randn(5, vocabulary).to(dtype)
    logits[1] = -logits[1].abs() - 3
    logits[2, [vocabulary - 1, vocabulary // 2]] = logits[2].max() + 1
    logits[3] = float("-inf")
    logits[4, vocabulary // 3] = float("nan")
    tokens = torch.full((5,), -77, dtype=torch.int64)
    greedy.launch(logits, greedy.workspace(5, vocabulary), tokens)
    assert tokens.tolist() == [int((row.nan_to_num(float("inf")) == row.nan_to_num(float("inf")).max()).nonzero()[0])
                               for row in logits]  # fmt: skip
