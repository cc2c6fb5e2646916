"""libCacheSim as a peer: a routing trace as one of its own trace files, and its hits under one of its policies."""

from __future__ import annotations

import numpy as np

# In its terms: time, object, size, and the place of the object's next request (-1: never), which Belady reads.
REQUEST = np.dtype([("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])
# Its LFU counts an object's requests since it was admitted; ours of that kind is lfu_resident.
PEERS = {"lru": "LRU", "lfu_resident": "LFU", "belady": "Belady"}


def write_trace(path, keys):
    """``keys`` int [m], one access each, all of size 1."""
    requests = np.zeros(len(keys), dtype=REQUEST)
    requests["time"], requests["object"], requests["size"], requests["next"] = 1, keys, 1, -1
    by_key = np.argsort(keys, kind="stable")
    again = keys[by_key][1:] == keys[by_key][:-1]
    requests["next"][by_key[:-1][again]] = by_key[1:][again]
    requests.tofile(path)


def open_trace(path):
    import libcachesim

    return libcachesim.TraceReader(str(path), libcachesim.TraceType.ORACLE_GENERAL_TRACE)


def hits_of(reader, policy, slots, accesses):
    import libcachesim

    reader.reset()
    # 2 ** 12 buckets: by default its table would be 128 MiB.
    cache = getattr(libcachesim, PEERS[policy])(slots, hashpower=12, reader=reader)
    missed, _ = cache.process_trace(reader)
    return round((1 - missed) * accesses)
