"""A loaded model and the systems that can be tried on it: load once, place, generate, place again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seqmoe.predictor.base import Predictor
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.decode import Decoder, Generation, OnToken
from seqmoe.runtime.emulation import Emulation, LayerPacer, decoding
from seqmoe.runtime.full_load import FullLoad
from seqmoe.runtime.loading import Loaded, load
from seqmoe.runtime.offload import Router
from seqmoe.runtime.offloaded import Offloaded
from seqmoe.runtime.retention import Offline
from seqmoe.runtime.sampling import Sampling
from seqmoe.runtime.timers import StepTimers
from seqmoe.spec.system import SystemSpec

# Routers whose weights, divided by their sum, are the softmax over the chosen experts' logits.
_TOLD_BY_WEIGHTS = ("softmax", "softmax_renormalised")


class Engine:
    """One model on this host, its experts in the host pool; at full load until another system is placed."""

    def __init__(self, checkpoint: Checkpoint, tier: str = "pageable", loaded: Loaded | None = None) -> None:
        """Load the checkpoint, unless it comes ``loaded``."""
        loaded = loaded or load(checkpoint, tier)
        self.checkpoint = checkpoint
        self.tokenizer = checkpoint.tokenizer
        self.geometry = checkpoint.geometry
        self.host = loaded.host
        self.router = Router(loaded.experts)
        self._loaded = loaded
        self._interpreted = Decoder(loaded.model, checkpoint.family.static_cache, self.router)
        self._compiled: Decoder | None = None
        family = checkpoint.family
        if family.router_kind(checkpoint.config) not in _TOLD_BY_WEIGHTS:
            self.router.read_logits(family.routers(loaded.model), family)
        self._decoder = self._interpreted

    @staticmethod
    def load(source: Path | str, dtype: str = "float32", tier: str = "pageable") -> Engine:
        """Load a checkpoint folder or hub id, its experts into the host pool."""
        return Engine(Checkpoint.open(source, dtype), tier)

    def place_full(self) -> None:
        """Full load: every expert resident, at this host's own speed."""
        self._stop()
        self.pacer = None
        self.router.eager = False
        self._decoder = self._interpreted
        self.router.placement = FullLoad(self.host.resident(), self.geometry)

    def place(
        self,
        spec: SystemSpec,
        residency: float,
        predictor: Predictor | None,
        emulation: Emulation | None,
        offline: Offline | None = None,
    ) -> None:
        """Choose a system; an offloaded one starts with an empty pool. Without emulation the link is a plain copy.

        ``offline`` is what the system must know from other traces. Raises ``ValueError`` where it is missing, and
        `InputError` where its execution is "graph" and the step cannot be compiled here.
        """
        self._stop()
        self._decoder = self._graph() if spec.execution == "graph" else self._interpreted
        self.pacer = emulation.pacer() if emulation is not None else None
        self.router.eager = spec.execution == "eager"
        if spec.retention == "all":
            self.router.placement = FullLoad(self.host.resident(), self.geometry)
            return
        self.router.placement = Offloaded(self.host, self.geometry, spec, residency, predictor, emulation, offline)

    def _graph(self) -> Decoder:
        if self._compiled is None:
            # Imported only here: a compiler's front end takes seconds to load.
            from seqmoe.runtime.graph.decoder import GraphDecoder

            self._compiled = GraphDecoder(self._loaded.model, self._loaded.experts, self.geometry, self.router)
        return self._compiled

    @property
    def pacer(self) -> LayerPacer | None:
        """What pads the layers of an emulated system."""
        return self.router.pacer

    @pacer.setter
    def pacer(self, pacer: LayerPacer | None) -> None:
        self.router.pacer = pacer

    @property
    def timers(self) -> StepTimers:
        """Where the time of the decode steps went; meaningless for padded layers."""
        return self.router.timers

    def generate(
        self, prompt: list[int], tokens: int, keep_logits: bool = False, on_token: OnToken | None = None
    ) -> Generation:
        """Greedy decoding of one prompt; see `generate_batch`."""
        return self.generate_batch([prompt], tokens, keep_logits, on_token)[0]

    def generate_batch(
        self, prompts: list[list[int]], tokens: int, keep_logits: bool = False, on_token: OnToken | None = None
    ) -> list[Generation]:
        """Greedy decoding of prompts of any lengths through the chosen placement; see `Decoder.generate`.

        Raises ``ValueError`` for lengths that the model cannot take, and more prompts than the pool can serve.
        """
        if not prompts:
            raise ValueError("no prompts given")
        for prompt in prompts:
            self.checkpoint.check_lengths(prompt, tokens)
        if not self.router.placed:
            self.place_full()
        results: dict[int, Generation] = {}
        for places in self._decoder.batches(prompts):
            self.router.placement.begin_request(len(places))
            with decoding(self.pacer, on_token) as first_then:
                together = [prompts[place] for place in places]
                found = self._decoder.generate(together, tokens, keep_logits, first_then)
            results |= zip(places, found, strict=True)
        return [results[place] for place in range(len(prompts))]

    @property
    def decoder(self) -> Decoder:
        """What runs the steps of the placed system."""
        return self._decoder

    @property
    def compiled(self) -> bool:
        """Whether its steps are compiled, each batch size by itself."""
        return self._decoder is self._compiled

    def stream(self, prompt: list[int], tokens: int, sampling: Sampling | None = None) -> Iterator[Generation]:
        """`generate`, step by step: the same result after each token. With ``sampling`` as that says, to the end of
        text; the tokens may then be none.
        """
        self.checkpoint.check_lengths(prompt, tokens)
        if not self.router.placed:
            self.place_full()
        self.router.placement.begin_request(1)
        pacer = self.pacer
        try:
            sampler = self._decoder.sampler(sampling) if sampling is not None else None
            for index, results in enumerate(self._decoder.stream([prompt], tokens, sampler=sampler)):
                yield results[0]
                if index == 0 and pacer is not None:
                    pacer.start()
        finally:
            if pacer is not None:
                pacer.stop()

    @property
    def offloaded(self) -> Offloaded | None:
        """The offloaded placement, or None at full load."""
        placement = self.router.placement if self.router.placed else None
        return placement if isinstance(placement, Offloaded) else None

    def _stop(self) -> None:
        """End the worker and free the pool, before there is another one."""
        if self.offloaded is not None:
            self.offloaded.stop()
            self.router.unplace()

    def close(self) -> None:
        """End the prefetch worker, if one runs."""
        self._stop()
