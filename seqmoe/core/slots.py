"""The slot table: which expert each slot of the shared pool holds, and who must go next (paper, sections 7.1 and 8.2).

A slot is in one of four states::

    EMPTY, USED --reserve--> FETCH --land--> COMPUTE --release--> USED
    EMPTY, USED --load-----> COMPUTE         FETCH --cancel, land(ok=False)--> EMPTY         USED --evict--> EMPTY

`reserve` and `load` take an EMPTY slot first, then the USED slot whose expert has the lowest retention score, ties by
the lower expert key; never one that the current event needs, and never a slot in FETCH or COMPUTE. Every retention
policy is a way to fill ``score``. An expert in FETCH already has its slot in ``slot_of``. A landing counts only with
the tag that the slot expects. Illegal transitions raise ``RuntimeError``, unknown experts and slots ``IndexError``.

One thread owns a table; its array properties are views of the C++ memory, of which only ``score`` may be written. While
a pipeline drives it (`seqmoe.core.pipeline`), its worker takes slots too: methods and ``fetch_limit`` are safe then.
"""

from __future__ import annotations

from seqmoe.core._native import SlotTable

EMPTY, USED, FETCH, COMPUTE = range(4)

__all__ = ["COMPUTE", "EMPTY", "FETCH", "USED", "SlotTable"]
