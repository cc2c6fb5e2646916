"""A loaded model and the systems that can be tried on it: load once, place, generate, place again."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.models.auto.tokenization_auto import AutoTokenizer

from seqmoe.adapters.base import family_of
from seqmoe.predictor.base import Predictor
from seqmoe.runtime.decode import Decoder, Generation
from seqmoe.runtime.offload import NAME, FullLoad, Offloaded, Router
from seqmoe.runtime.placement import ExpertPool, move_experts_to_host
from seqmoe.spec.errors import InputError
from seqmoe.spec.geometry import Geometry
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

    def __init__(self, model: Any, tokenizer: PreTrainedTokenizerFast, geometry: Geometry, experts: list[Any]) -> None:
        self.tokenizer = tokenizer
        self.geometry = geometry
        self.host: ExpertPool = move_experts_to_host(experts)
        self.router = Router(experts, geometry.experts)
        self._decoder = Decoder(model)
        self._layer_seconds: float | None = None
        self.place_full()

    @staticmethod
    def load(checkpoint: Path | str) -> Engine:
        """Load a checkpoint folder or hub id in float32, and move its experts to the host pool.

        Raises `InputError` for a path that does not exist, or a model family that the runtime does not know.
        """
        try:
            config = AutoConfig.from_pretrained(checkpoint)
            family = family_of(config.model_type)
            model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, experts_implementation=NAME)
            tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        except (OSError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            reason = str(error).strip().splitlines()[0]
            raise InputError(f"model {str(checkpoint)!r}: cannot be loaded: {reason}") from None
        return Engine(model.eval(), tokenizer, family.geometry(config), family.experts(model))

    def place_full(self) -> None:
        """Full load: every expert resident."""
        self._stop()
        self.router.placement = FullLoad(self.host, self.geometry)

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
        if self._layer_seconds is None:
            previous, self.router.placement = self.router.placement, FullLoad(self.host, self.geometry)
            rng = np.random.default_rng(0)
            prompt = rng.integers(1, self.tokenizer.vocab_size, _CALIBRATION_PROMPT).tolist()
            times = self._decoder.generate(prompt, _CALIBRATION_TOKENS).token_ns[_CALIBRATION_TOKENS // 4 :]
            self._layer_seconds = statistics.median(np.diff(times).tolist()) / 1e9 / self.geometry.layers
            self.router.placement = previous
        return Emulation(overlap_ratio, self._layer_seconds)

    def generate(
        self,
        prompt: list[int],
        tokens: int,
        keep_logits: bool = False,
        on_token: Callable[[int, int], None] | None = None,
    ) -> Generation:
        """Greedy decoding of one prompt through the chosen placement; see `Decoder.generate`."""
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
