"""Protects what kernels are compiled into: how they reach host memory, and that no format needs a new GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

_FEW_BYTES = 128
KERNELS = {"land", "lend", "dispatch", "plan", "copy_misses", "experts_down"}


def check(tmp_path, *arguments, **environment):
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), **environment}
    command = [sys.executable, "-m", "seqmoe.runtime.kernels.check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="nothing is compiled: Triton is not installed")
def test_what_reaches_host_memory_is_ordered_and_wide(tmp_path):
    ended = check(tmp_path, "--architectures", "80", "--kernels", ",".join(KERNELS), "--json")
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    rows = json.loads(ended.stdout.splitlines()[-1])["kernels"]
    assert {row["kernel"] for row in rows} == KERNELS
    assert {row["of"].split(",")[0] for row in rows if row["kernel"] == "experts_down"} == {"bf16", "fp8", "mxfp4"}
    # Of a pool of thousands of slots, older compilers keep some words of the search in local memory.
    assert [row for row in rows if max(row["spilled"]) > (_FEW_BYTES if row["kernel"] in ("lend", "plan") else 0)] == []
    # A read-modify-write of mapped host memory is not atomic over PCIe.
    assert [row for row in rows if row["system_atomics"]] == []
    ordered = {row["kernel"]: (*row["ordered"], row["relaxed"]) for row in rows}
    assert ordered == {
        "land": (1, 1, 1), "lend": (0, 1, 0), "dispatch": (0, 1, 0), "copy_misses": (0, 0, 2), "plan": (0, 0, 0),
        "experts_down": (0, 0, 0),
    }  # fmt: skip
    for row in rows:
        if row["kernel"] in ("copy_misses", "experts_down"):
            assert row["wide"][0] >= 1, row
        if row["kernel"] == "copy_misses":
            assert row["wide"][0] == row["wide"][1], row


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kernels", "plan,lent"), "kernel 'lent' is unknown"),
        (("--architectures", "75"), "75 is not checked"),
        (("--architectures", "all"), "--architectures 'all'"),
    ],
)
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="nothing is compiled: Triton is not installed")
def test_wrong_arguments_are_refused(tmp_path, arguments, said):
    ended = check(tmp_path, *arguments)
    assert (ended.returncode, said in ended.stderr) == (2, True), ended.stderr
