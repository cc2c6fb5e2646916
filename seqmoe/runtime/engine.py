"""A loaded model and the systems that can be tried on it: load once, place, generate, place again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seqmoe.predictor.base import Predictor
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.decode import Decoder, Generation
from seqmoe.runtime.emulation import Emulation, LayerPacer, decoding
from seqmoe.runtime.loading import load
from seqmoe.runtime.offload import FullLoad, Offloaded, Router
from seqmoe.spec.system import SystemSpec


class Engine:
    """One model on this host, its experts in the host pool."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        loaded = load(checkpoint)
        self.checkpoint = checkpoint
        self.tokenizer = checkpoint.tokenizer
        self.geometry = checkpoint.geometry
        self.host = loaded.host
        self.router = Router(loaded.experts, self.geometry.experts, FullLoad(self.host.resident(), self.geometry))
        self._decoder = Decoder(loaded.model, checkpoint.family.static_cache)

    @staticmethod
    def load(source: Path | str) -> Engine:
        """Load a checkpoint folder or hub id in float32, its experts into the host pool."""
        return Engine(Checkpoint.open(source))

    def place_full(self) -> None:
        """Full load: every expert resident, at this host's own speed."""
        self._stop()
        self.pacer = None
        self.router.placement = FullLoad(self.host.resident(), self.geometry)

    def place(
        self, spec: SystemSpec, residency: float, predictor: Predictor | None, emulation: Emulation | None
    ) -> None:
        """Choose a system; an offloaded one starts with an empty pool. Without emulation the link is a plain copy."""
        self.place_full()
        self.pacer = LayerPacer(emulation.pace.layer_seconds, emulation.factor) if emulation is not None else None
        if spec.retention == "all":
            return
        self.router.placement = Offloaded(
            self.host,
            self.geometry,
            spec,
            residency,
            predictor if spec.predictor != "none" else None,
            emulation.link_seconds_per_expert if emulation else 0.0,
            emulation.overlap_ratio if emulation else float(self.geometry.experts),
        )

    @property
    def pacer(self) -> LayerPacer | None:
        """What pads the layers of an emulated system."""
        return self.router.pacer

    @pacer.setter
    def pacer(self, pacer: LayerPacer | None) -> None:
        self.router.pacer = pacer

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
        with decoding(self.pacer, on_token) as first_then:
            return self._decoder.generate(prompt, tokens, keep_logits, first_then)

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
