"""The links to the slot pool: each is one channel that really copies, at a throttled pace if asked.

``Link([(host_address, device_address, bytes_per_expert), ...], seconds_per_expert)``: expert ``key`` lies at ``host +
key * bytes`` of every part, slot ``slot`` at ``device + slot * bytes``. The caller keeps the memory alive, or calls
``close()`` before it goes. A transfer takes at least ``seconds_per_expert`` of real time from the start of its copy,
exact to a few microseconds on an idle core; transfers queue for the channel.

``DiskLink(files, sources, [(device_address, bytes_from_slot_to_slot, bytes), ...], seconds_per_expert, direct)`` reads
experts from files, for models larger than memory: piece j of expert ``key`` begins at byte ``sources[key, j, 1]`` of
``files[sources[key, j, 0]]`` (int64 [keys, pieces, 2]) and goes to target j. With ``direct`` it reads past the page
cache, up to four blocks of 1 MiB side by side; its property ``direct`` is False where a file system refuses that. A
file that cannot be opened raises ``OSError`` at once. One that ends too early, or cannot be read, raises
``TransferError``, with its name and the byte, when the expert is asked for.

``DmaLink(context, sources, [(device_address, bytes_from_slot_to_slot, bytes), ...], seconds_per_expert, piece_bytes)``
copies by the GPU's own engine, on a stream of its own: piece j of expert ``key`` lies at the host address ``sources
[key, j]`` (int64 [keys, pieces]) of pinned memory (`seqmoe.core.mapped_memory`) and goes to target j, an address of the
device. It moves ``piece_bytes`` at a time, so that kernels that read host memory do not wait for a whole expert. A
failed call raises ``CudaError`` (`seqmoe.core.driver`), which is for good.

``FailingLink(link, every)`` is ``link`` with faults: every n-th transfer raises ``TransferError``, the others go over
``link`` at its pace.

A ``TransferError`` says that this transfer did not bring its bytes; a later one may. Any other error is one for good.
"""

from __future__ import annotations

from seqmoe.core._native import Channel, DiskLink, DmaLink, FailingLink, Link, TransferError

__all__ = ["Channel", "DiskLink", "DmaLink", "FailingLink", "Link", "TransferError"]
