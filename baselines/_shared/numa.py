"""Where this process may run and take memory from, as the kernel says. Standard library only."""

from __future__ import annotations

import ctypes
import platform
import re
from pathlib import Path

_MODES = ("default", "preferred", "bind", "interleave", "local", "preferred many", "weighted interleave")
# Number of the system call get_mempolicy.
_GET_MEMPOLICY = {"x86_64": 239, "aarch64": 236}
# Flags that are or-ed into the mode (static and relative nodes, balancing).
_FLAGS = 0xE000


def numa_policy() -> dict[str, str]:
    """The memory ``policy``, and the ``nodes`` and ``cpus`` that are allowed, as ranges such as "0-1".

    What the kernel does not tell is "unknown": another system than Linux, or a container that forbids the call.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        status = ""
    allowed = {name: re.search(rf"^{name}_allowed_list:\s*(\S+)", status, re.MULTILINE) for name in ("Mems", "Cpus")}
    nodes, cpus = (found[1] if found else "unknown" for found in allowed.values())
    return {"policy": _mode(), "nodes": nodes, "cpus": cpus}


def _mode() -> str:
    number = _GET_MEMPOLICY.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        return "unknown"
    mode = ctypes.c_int(-1)
    failed = ctypes.CDLL(None).syscall(number, ctypes.byref(mode), None, ctypes.c_ulong(0), None, ctypes.c_ulong(0))
    kind = mode.value & ~_FLAGS
    return "unknown" if failed or not 0 <= kind < len(_MODES) else _MODES[kind]
