"""The link between the host pool and the slot pool: one channel that really copies, at a throttled pace if asked.

``Link([(host_address, device_address, bytes_per_expert), ...], seconds_per_expert)``: expert ``key`` lies at ``host +
key * bytes`` of every part, slot ``slot`` at ``device + slot * bytes``. The caller keeps the memory alive, or calls
``close()`` before it goes. A transfer takes at least ``seconds_per_expert`` of real time, exact to a few microseconds
on an idle core; transfers queue for the channel.
"""

from __future__ import annotations

from seqmoe.core._native import Link

__all__ = ["Link"]
