"""Real computation with a throttled link: this host's own layers, and a link as slow in proportion as a GPU's."""

from __future__ import annotations

import numpy as np

from seqmoe.runtime.emulation import Emulation
from seqmoe.runtime.engine import Engine
from seqmoe.spec.pace import Pace

_PROMPT, _TOKENS = 16, 64


def throttled_to(engine: Engine, overlap_ratio: float) -> Emulation:
    """A link that moves ``overlap_ratio`` experts while a layer computes at full load on this host, in real time.

    The layer's time is measured here and now, on noise; place it with ``engine.pacer`` set to None afterwards, since
    nothing is to be padded.
    """
    engine.place_full()
    prompt = np.random.default_rng(0).integers(1, engine.checkpoint.config.vocab_size, _PROMPT).tolist()
    gaps = np.diff(engine.generate(prompt, _TOKENS).token_ns)
    layer = float(np.median(gaps[len(gaps) // 4 :])) / 1e9 / engine.geometry.layers
    return Emulation(Pace(layer, layer / overlap_ratio), 1.0)
