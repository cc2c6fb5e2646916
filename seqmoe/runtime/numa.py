"""Where this process may run and take memory from, told in the very words of the wrapped systems' workers.

These run in environments without this package, so the function is theirs; here it is loaded from their folder.
"""

from __future__ import annotations

import runpy

from seqmoe.spec.paths import find_home


def numa_policy() -> dict[str, str]:
    """The memory ``policy``, and the ``nodes`` and ``cpus`` that are allowed; see ``baselines/_shared/numa.py``."""
    told: dict[str, str] = runpy.run_path(str(find_home().baselines / "_shared" / "numa.py"))["numa_policy"]()
    return told
