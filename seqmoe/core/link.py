"""The links to the slot pool: each is one channel that really copies, at a throttled pace if asked.

``Link([(host_address, device_address, bytes_per_expert), ...], seconds_per_expert)``: expert ``key`` lies at ``host +
key * bytes`` of every part, slot ``slot`` at ``device + slot * bytes``. The caller keeps the memory alive, or calls
``close()`` before it goes. A transfer takes at least ``seconds_per_expert`` of real time from the start of its copy,
exact to a few microseconds on an idle core; transfers queue for the channel.

``FailingLink(link, every)`` is ``link`` with faults: every n-th transfer raises ``TransferError``, the others go over
``link`` at its pace.

A ``TransferError`` says that this transfer did not bring its bytes; a later one may. Any other error is one for good.
"""

from __future__ import annotations

from seqmoe.core._native import Channel, FailingLink, Link, TransferError

__all__ = ["Channel", "FailingLink", "Link", "TransferError"]
