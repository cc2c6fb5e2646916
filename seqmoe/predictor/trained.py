"""Predictors that are networks: one per layer range, behind the protocol that all predictors share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqmoe.predictor.base import Ranges, SequenceContext, positions
from seqmoe.predictor.confidence import Confidence
from seqmoe.predictor.container import Tensors, write_container
from seqmoe.predictor.network import NetworkShape, Prediction, SequenceNetwork
from seqmoe.predictor.running import Running, feeds_back, rollout, running
from seqmoe.spec.forecast import Forecast

_LINES = "confidence"


class TrainedPredictor:
    """Networks over layer ranges; one step at a time for a runtime, whole sequences for evaluation.

    ``observe`` advances a range's state by one step and keeps the one-step prediction; ``forecast`` feeds predictions
    back for as many steps as asked and then restores the state (paper, section 5: one-step and recursive mode).
    """

    def __init__(
        self,
        kind: str,
        ranges: Ranges,
        networks: Sequence[SequenceNetwork],
        confidence: Sequence[Confidence],
        psi: bool = True,
        settings: dict[str, Any] | None = None,
    ) -> None:
        shapes = [network.shape for network in networks]
        if [last - first for first, last in ranges] != [shape.layers for shape in shapes]:
            raise ValueError(f"ranges {ranges} do not fit networks of {[shape.layers for shape in shapes]} layers")
        self.kind = kind
        self.ranges = ranges
        self.layers = ranges[-1][1]
        self.experts, self.top_k = shapes[0].experts, shapes[0].top_k
        self.networks = [network.eval() for network in networks]
        self.confidence = list(confidence)
        self.psi = psi
        self.settings = settings or {}
        self.device = next(self.networks[0].parameters()).device
        self._running: list[Running | None] = [None] * len(ranges)
        self._begun = [False] * len(ranges)

    @property
    def parameters(self) -> int:
        """Numbers that were learned."""
        return sum(tensor.numel() for network in self.networks for tensor in network.parameters())

    def reset(self) -> None:
        """Forget the request."""
        for each in self._running:
            if each is not None:
                each.reset()
        self._begun = [False] * len(self.ranges)

    def prefill(self, activation: NDArray[np.float32]) -> None:
        """Take in a prompt, float32 [steps, layers, experts], at once."""
        for index, (first, last) in enumerate(self.ranges):
            self._follow(index).prefill(activation[:, first:last])

    def observe(self, activation: NDArray[np.float32], first_layer: int, last_layer: int) -> None:
        """Take in one step's activation of layers ``first_layer`` to ``last_layer`` (exclusive), one of the ranges."""
        index = self._index(first_layer, last_layer)
        self._follow(index).observe(activation[first_layer:last_layer])

    def forecast(self, first_layer: int, last_layer: int, lookahead: int) -> Forecast:
        """Probability that each expert of these layers is active in the next step, and in ``lookahead`` more."""
        index = self._index(first_layer, last_layer)
        follower = self._running[index]
        if follower is None or not self._begun[index]:
            shape = (lookahead + 1, last_layer - first_layer, self.experts)
            return Forecast(np.full(shape, self.top_k / self.experts, dtype=np.float32), first_layer)
        probability, use = follower.forecast(lookahead, self.confidence[index])
        return Forecast(probability, first_layer, use)

    @torch.inference_mode()
    def forecast_sequence(
        self,
        activation: NDArray[np.float32],
        lookahead: int,
        stride: int = 1,
        context: SequenceContext | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """All forecasts of one request at once, see `seqmoe.predictor.base.Predictor.forecast_sequence`."""
        chosen = positions(len(activation), stride)
        result = np.empty((len(chosen), lookahead + 1, self.layers, self.experts), dtype=np.float32)
        for index, (first, last) in enumerate(self.ranges):
            network, confidence = self.networks[index], self.confidence[index]
            sequence = network.read(activation[:, first:last])
            seen = network(sequence[None])
            ahead = None if seen.ahead is None else seen.ahead[0, chosen]
            chosen_only = Prediction(seen.logits[0, chosen], ahead=ahead)
            if not feeds_back(network, lookahead):
                for step, row in enumerate(rollout(network, confidence, chosen_only, lookahead, None)):
                    result[:, step, first:last] = row.cpu().numpy()
                continue
            begun = 0
            for group, state in network.states_after(sequence, chosen.tolist()):
                rows = slice(begun, begun + len(group))
                begun = rows.stop
                start = Prediction(chosen_only.logits[rows])
                for step, row in enumerate(rollout(network, confidence, start, lookahead, state, self.psi)):
                    result[rows, step, first:last] = row.cpu().numpy()
        self.reset()
        return chosen, result

    @torch.inference_mode()
    def use_sequence(self, activation: NDArray[np.float32], stride: int = 1) -> NDArray[np.float32] | None:
        """The direct forecast of discounted use, float32 [n, layers, experts], at every ``stride``-th step.

        None for networks that have no such head.
        """
        parts = []
        for network, (first, last) in zip(self.networks, self.ranges, strict=True):
            use = network(network.read(activation[None, :, first:last])).use
            if use is None:
                return None
            parts.append(use[0, ::stride].sigmoid().cpu().numpy())
        return np.concatenate(parts, axis=1)

    def save(self, path: Path, training: dict[str, Any] | None = None) -> None:
        """Write networks (float16), confidence and the record of the training as one file."""
        tensors: Tensors = {}
        for index, network in enumerate(self.networks):
            for name, tensor in network.state_dict().items():
                tensors[f"{index}.{name}"] = tensor.cpu().to(torch.float16).numpy()
            tensors[f"{index}.{_LINES}"] = self.confidence[index].lines
        about = {
            "geometry": {"layers": self.layers, "experts": self.experts, "top_k": self.top_k},
            "ranges": [list(pair) for pair in self.ranges],
            "settings": self.settings
            | {"psi": self.psi, "networks": [asdict(network.shape) for network in self.networks]},
            "training": training or {},
        }
        write_container(path, self.kind, tensors, about)

    def _follow(self, index: int) -> Running:
        """A range's network on the request, which has begun; made when it is first needed, as its weights then are."""
        found = self._running[index]
        if found is None:
            found = self._running[index] = running(self.networks[index], self.psi)
        self._begun[index] = True
        return found

    def _index(self, first_layer: int, last_layer: int) -> int:
        if (first_layer, last_layer) not in self.ranges:
            raise ValueError(f"layers {first_layer} to {last_layer}: this predictor was made for {self.ranges}")
        return self.ranges.index((first_layer, last_layer))


def restore(about: dict[str, Any], tensors: Tensors) -> TrainedPredictor:
    """The predictor that a file describes; ``ValueError``, ``KeyError`` or ``TypeError`` where it is not whole."""
    networks, confidence = [], []
    settings = dict(about["settings"])
    for index, shape in enumerate(settings.pop("networks")):
        network = SequenceNetwork(NetworkShape(**shape))
        own = {name.removeprefix(f"{index}."): value for name, value in tensors.items() if name.startswith(f"{index}.")}
        confidence.append(Confidence(own.pop(_LINES)))
        try:
            network.load_state_dict({name: torch.from_numpy(value.astype(np.float32)) for name, value in own.items()})
        except RuntimeError as error:
            raise ValueError(str(error).splitlines()[0]) from None
        networks.append(network)
    ranges: Ranges = tuple((int(first), int(last)) for first, last in about["ranges"])
    return TrainedPredictor(about["kind"], ranges, networks, confidence, bool(settings.pop("psi")), settings)
