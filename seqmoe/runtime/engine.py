"""A loaded model and the systems that can be tried on it: load once, place, generate, place again."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqmoe.predictor.base import Predictor
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.decode import Decoder, Generation
from seqmoe.runtime.loading import load
from seqmoe.runtime.offload import FullLoad, Offloaded, Router
from seqmoe.spec.system import SystemSpec

_CALIBRATION_PROMPT = 16
_CALIBRATION_TOKENS = 48


@dataclass(frozen=True, slots=True)
class Emulation:
    """The link of an emulated cell: asked overlap ratio, this host's full-load layer time, and the transfer time."""

    overlap_ratio: float
    layer_seconds: float

    @property
    def link_seconds_per_expert(self) -> float:
        """Seconds that one expert occupies the link."""
        return self.layer_seconds / self.overlap_ratio


class Engine:
    """One model on this host, its experts in the host pool."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        loaded = load(checkpoint)
        self.checkpoint = checkpoint
        self.tokenizer = checkpoint.tokenizer
        self.geometry = checkpoint.geometry
        self.host = loaded.host
        self.router = Router(loaded.experts, self.geometry.experts, FullLoad(self.host.resident(), self.geometry))
        self._decoder = Decoder(loaded.model)

    @staticmethod
    def load(source: Path | str) -> Engine:
        """Load a checkpoint folder or hub id in float32, its experts into the host pool."""
        return Engine(Checkpoint.open(source))

    def place_full(self) -> None:
        """Full load: every expert resident."""
        self._stop()
        self.router.placement = FullLoad(self.host.resident(), self.geometry)

    def place(
        self, spec: SystemSpec, residency: float, predictor: Predictor | None, emulation: Emulation | None
    ) -> None:
        """Choose a system; an offloaded one starts with an empty pool. Without emulation the link is a plain copy."""
        if spec.retention == "all":
            self.place_full()
            return
        self._stop()
        self.router.placement = Offloaded(
            self.host,
            self.geometry,
            spec,
            residency,
            predictor if spec.predictor != "none" else None,
            emulation.link_seconds_per_expert if emulation else 0.0,
            emulation.overlap_ratio if emulation else float(self.geometry.experts),
        )

    def emulate(self, overlap_ratio: float) -> Emulation:
        """Calibrate a link to this host: so slow that it moves ``overlap_ratio`` experts per full-load layer time."""
        previous, self.router.placement = self.router.placement, FullLoad(self.host.resident(), self.geometry)
        rng = np.random.default_rng(0)
        prompt = rng.integers(1, self.tokenizer.vocab_size, _CALIBRATION_PROMPT).tolist()
        times = self._decoder.generate(prompt, _CALIBRATION_TOKENS).token_ns[_CALIBRATION_TOKENS // 4 :]
        self.router.placement = previous
        return Emulation(overlap_ratio, statistics.median(np.diff(times).tolist()) / 1e9 / self.geometry.layers)

    def generate(
        self,
        prompt: list[int],
        tokens: int,
        keep_logits: bool = False,
        on_token: Callable[[int, int], None] | None = None,
    ) -> Generation:
        """Greedy decoding of one prompt through the chosen placement; see `Decoder.generate`.

        Raises ``ValueError`` for lengths that the model cannot take.
        """
        self.checkpoint.check_lengths(prompt, tokens)
        self.router.placement.begin_request()
        return self._decoder.generate(prompt, tokens, keep_logits, on_token)

    @property
    def offloaded(self) -> Offloaded | None:
        """The offloaded placement, or None at full load."""
        placement = self.router.placement
        return placement if isinstance(placement, Offloaded) else None

    def _stop(self) -> None:
        if self.offloaded is not None:
            self.offloaded.stop()

    def close(self) -> None:
        """End the prefetch worker, if one runs."""
        self._stop()
