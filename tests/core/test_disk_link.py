"""Protects the disk link: any offset of any file arrives whole, past the page cache or not, and a fault says where."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pool_of_bytes import Pool

from seqmoe.core.budget import TransferBudget
from seqmoe.core.link import DiskLink, TransferError
from seqmoe.core.pipeline import OffloadPipeline
from seqmoe.core.slots import SlotTable

BLOCK, BUFFER = 4096, 1 << 20
SLOTS = 3


class Files:
    """Files of random bytes, and a device pool of two parts; part 0 is filled by pieces 0 and 1, part 1 by piece 2."""

    def __init__(self, folder, file_bytes, piece_bytes=(5000, 300, 4096)):
        rng = np.random.default_rng(3)
        self.contents = [rng.integers(0, 256, size, dtype=np.uint8) for size in file_bytes]
        self.paths = [str(folder / f"part-{number}.bin") for number in range(len(file_bytes))]
        for path, content in zip(self.paths, self.contents, strict=True):
            content.tofile(path)
        self.piece_bytes = piece_bytes
        first, second, third = piece_bytes
        self.device = [np.zeros((SLOTS, first + second), np.uint8), np.zeros((SLOTS, third), np.uint8)]

    def link(self, sources, **options):
        first, second, third = self.piece_bytes
        address = [part.ctypes.data for part in self.device]
        targets = [
            (address[0], first + second, first),
            (address[0] + first, first + second, second),
            (address[1], third, third),
        ]
        self.sources = np.array(sources, dtype=np.int64)
        return DiskLink(self.paths, self.sources, targets, **options)

    def expected(self, key):
        pieces = [
            self.contents[file][offset : offset + size]
            for (file, offset), size in zip(self.sources[key], self.piece_bytes, strict=True)
        ]
        return np.concatenate(pieces)

    def slot(self, slot):
        return np.concatenate([part[slot] for part in self.device])


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), direct=st.booleans())
def test_every_piece_arrives_whole_from_any_offset_of_any_file(tmp_path, data, direct):
    near_blocks = st.integers(-2, 2).flatmap(lambda by: st.integers(1, 4).map(lambda block: block * BLOCK + by))
    sizes = data.draw(st.tuples(*[st.integers(1, 9000) | near_blocks] * 3))
    file_bytes = [data.draw(st.integers(25_000, 40_000)) for _ in range(2)]
    files = Files(tmp_path, file_bytes, sizes)
    sources = []
    for _ in range(4):
        where = [data.draw(st.integers(0, 1)) for _ in sizes]
        last = [file_bytes[file] - size for file, size in zip(where, sizes, strict=True)]
        offsets = [data.draw(st.integers(0, end) | st.just(end)) for end in last]
        sources.append(list(zip(where, offsets, strict=True)))
    link = files.link(sources, direct=direct)
    for key in range(4):
        before = files.slot(1).copy()
        link.transfer(key, key % 2 * 2)
        assert np.array_equal(files.slot(key % 2 * 2), files.expected(key))
        assert np.array_equal(files.slot(1), before)
    assert (link.transfers, link.bytes) == (4, 4 * sum(sizes))


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("by", [-1, 0, 1, BLOCK - 1])
def test_experts_larger_than_the_buffer_are_read_in_parts(tmp_path, direct, by):
    files = Files(tmp_path, [3 * BUFFER + 50], (2 * BUFFER + by, 7, 2 * BUFFER))
    link = files.link([[(0, 13), (0, 3 * BUFFER), (0, BUFFER - 3)]], direct=direct)
    link.transfer(0, 2)
    assert np.array_equal(files.slot(2), files.expected(0))


def test_direct_reads_are_used_where_the_file_system_takes_them(tmp_path):
    files = Files(tmp_path, [BUFFER])
    try:
        os.close(os.open(files.paths[0], os.O_RDONLY | os.O_DIRECT))
        taken = True
    except OSError:
        taken = False
    assert files.link([[(0, 0)] * 3]).direct is taken
    assert files.link([[(0, 0)] * 3], direct=False).direct is False


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that refuses direct reads")
def test_a_file_system_that_refuses_direct_reads_is_read_all_the_same():
    path = "/proc/version"  # of a file system without direct reads
    with pytest.raises(OSError, match="Invalid argument"):
        os.open(path, os.O_RDONLY | os.O_DIRECT)
    device = np.zeros((1, 16), np.uint8)
    link = DiskLink([path], np.array([[[0, 2]]]), [(device.ctypes.data, 16, 16)])
    link.transfer(0, 0)
    with open(path, "rb") as file:
        assert device.tobytes() == file.read()[2:18]
    assert link.direct is False


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that refuses direct reads")
def test_a_refusal_met_by_several_readers_at_once_is_met_once():
    for _ in range(20):
        device = np.zeros((1, 6 * 16), np.uint8)
        targets = [(device.ctypes.data + 16 * piece, 6 * 16, 16) for piece in range(6)]
        link = DiskLink(["/proc/version"], np.array([[[0, 2]] * 6]), targets)
        link.transfer(0, 0)
        with open("/proc/version", "rb") as file:
            assert device.tobytes() == file.read()[2:18] * 6
        assert link.direct is False


def test_many_blocks_by_several_readers_arrive_each_in_its_place(tmp_path):
    files = Files(tmp_path, [9 * BUFFER], (3 * BUFFER + 5, 2 * BUFFER, BUFFER + 1))
    link = files.link([[(0, key), (0, 3 * BUFFER + key), (0, 7 * BUFFER - key)] for key in range(12)])
    for key in range(12):
        link.transfer(key, key % SLOTS)
        assert np.array_equal(files.slot(key % SLOTS), files.expected(key))
    os.truncate(files.paths[0], 4 * BUFFER)
    for key in range(12):  # whichever reader meets the end first
        with pytest.raises(TransferError, match=r"part-0\.bin ends at byte"):
            link.transfer(key, key % SLOTS)
    assert link.transfers == 12


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("kept", [0, 1, BLOCK, 2 * BLOCK + 499, 2 * BLOCK + 500])
def test_a_truncated_file_is_named_with_the_place(tmp_path, direct, kept):
    files = Files(tmp_path, [50_000, 50_000], (5000, 300, 4096))
    link = files.link([[(0, 0), (0, 0), (1, 2 * BLOCK + 500)], [(0, 0), (0, 0), (0, 0)]], direct=direct)
    os.truncate(files.paths[1], kept)
    with pytest.raises(TransferError, match=f"part-1.bin ends at byte .* {2 * BLOCK + 500} to {3 * BLOCK + 500}"):
        link.transfer(0, 0)
    link.transfer(1, 0)
    assert np.array_equal(files.slot(0), files.expected(1))
    assert link.transfers == 1


@pytest.mark.parametrize("direct", [False, True])
def test_a_file_cut_inside_an_expert_is_named_with_its_end(tmp_path, direct):
    files = Files(tmp_path, [50_000])
    link = files.link([[(0, 0), (0, 0), (0, 30_000)]], direct=direct)
    os.truncate(files.paths[0], 31_234)
    with pytest.raises(TransferError, match=r"part-0\.bin ends at byte 31234, "):
        link.transfer(0, 0)


def test_a_missing_file_is_refused_by_name(tmp_path):
    files = Files(tmp_path, [50_000])
    files.paths.append(str(tmp_path / "absent.bin"))
    with pytest.raises(FileNotFoundError) as raised:
        files.link([[(0, 0)] * 3])
    assert raised.value.filename == files.paths[1]


def test_a_folder_cannot_be_read(tmp_path):
    device = np.zeros((1, 16), np.uint8)
    link = DiskLink([str(tmp_path)], np.array([[[0, 0]]]), [(device.ctypes.data, 16, 16)], direct=False)
    with pytest.raises(TransferError, match=f"cannot read .*{tmp_path.name} at byte 0: Is a directory"):
        link.transfer(0, 0)


def test_files_are_closed_with_the_link(tmp_path):
    files = Files(tmp_path, [50_000] * 5)
    before = len(os.listdir("/proc/self/fd"))
    link = files.link([[(0, 0)] * 3])
    assert len(os.listdir("/proc/self/fd")) == before + 5
    del link
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sources": [[[1, 0]]]}, "1 files"),
        ({"sources": [[[-1, 0]]]}, "1 files"),
        ({"sources": [[[0, -1]]]}, "1 files"),
        ({"sources": [[[0, 0], [0, 0]]]}, "as many pieces"),
        ({"targets": [(0, 8, 8)]}, "none of them 0"),
        ({"targets": [(8, 4, 8)]}, "not the larger"),
        ({"sources": np.zeros((1, 0, 2)), "targets": []}, "at least one piece"),
        ({"seconds_per_expert": -1.0}, "seconds_per_expert"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, change, message):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(8))
    arguments = {"sources": [[[0, 0]]], "targets": [(8, 8, 8)]} | change
    arguments["sources"] = np.array(arguments["sources"], dtype=np.int64)
    with pytest.raises(ValueError, match=message):
        DiskLink([str(path)], **arguments)


def test_an_unknown_expert_is_refused(tmp_path):
    link = Files(tmp_path, [50_000]).link([[(0, 0)] * 3])
    for key in (-1, 1):
        with pytest.raises(IndexError, match=f"key {key} has no source"):
            link.transfer(key, 0)


def test_a_pipeline_over_a_disk_link_holds_the_right_bytes(tmp_path):
    """The drive of the memory link, with the host pool in a file."""
    rng = np.random.default_rng(5)
    with Pool(slots=5) as pool:
        path = tmp_path / "experts"
        path.write_bytes(b"header " + pool.host.tobytes())
        row = pool.host.strides[0]
        sources = np.array([[[0, 7 + row * key]] for key in range(len(pool.host))])
        link = DiskLink([str(path)], sources, [(pool.device.ctypes.data, row, row)])
        table = SlotTable(pool.layers, pool.experts, 5)
        with OffloadPipeline(table, link, TransferBudget(4.0)) as pipeline:
            for position in range(100):
                layer = position % 4
                experts = rng.permutation(8)[:3].astype(np.int32)
                slots = pipeline.enter(layer, position, experts)
                keys = rng.integers(0, 32, 10).astype(np.int32)
                pipeline.prefetch(keys, rng.random(10, np.float32), position + 4 + keys.astype(np.int64) // 8)
                pipeline.leave(layer)
                assert pool.holds(layer, experts, slots)
            counts = pipeline.statistics()
        assert counts["prefetch_sent"] > 0
        assert link.bytes == row * link.transfers


def test_a_truncated_file_ends_in_an_error_after_three_attempts(tmp_path):
    files = Files(tmp_path, [50_000])
    link = files.link([[(0, 0)] * 3, [(0, 40_000)] * 3])
    os.truncate(files.paths[0], 42_000)
    table = SlotTable(1, 2, 2)
    with OffloadPipeline(table, link, TransferBudget(4.0)) as pipeline:
        pipeline.prefetch(np.array([1], np.int32), np.ones(1, np.float32), np.array([5]))
        pipeline.settle()
        pipeline.enter(0, 0, np.array([0], np.int32))
        assert pipeline.statistics()["prefetch_failed"] == 1
        with pytest.raises(TransferError, match=r"part-0\.bin ends at byte 42000"):
            pipeline.enter(0, 1, np.array([1], np.int32))
        assert pipeline.statistics()["on_demand_failed"] == 3
        assert table.slot_of[0, 1] == -1
        pipeline.enter(0, 2, np.array([0], np.int32))
