"""The predictor on the device: it reads what routers chose and forecasts at its trigger layers, without the host."""

from __future__ import annotations

import copy

import torch

from seqmoe.predictor.base import Predictor
from seqmoe.predictor.network import SequenceNetwork, State
from seqmoe.predictor.running import rollout
from seqmoe.predictor.trained import TrainedPredictor
from seqmoe.spec.errors import InputError

_LEAST = torch.finfo(torch.float32).tiny


class DeviceForecaster:
    """Mamba2 networks with their states at fixed addresses; the twin of `seqmoe.runtime.forecasting.ForecastDriver`.

    ``lookahead`` steps are rolled out beyond the next one. Several requests are one to the predictor: their mean.
    Raises `InputError` for a predictor that is no such network.
    """

    def __init__(self, predictor: Predictor, lookahead: int, device: torch.device) -> None:
        if not isinstance(predictor, TrainedPredictor) or any(
            network.shape.trunk != "mamba2" for network in predictor.networks
        ):
            kind = getattr(predictor, "kind", type(predictor).__name__)
            raise InputError(f"predictor {kind!r}: runs on a CPU only; the CUDA runtime takes one of kind 'mamba2'")
        self._lookahead, self._psi = lookahead, predictor.psi
        self._networks: list[SequenceNetwork] = [copy.deepcopy(one).to(device) for one in predictor.networks]
        self._confidence = predictor.confidence
        self._states: list[State] = [network.new_state(1) for network in self._networks]
        self._activation = torch.zeros(predictor.layers, predictor.experts, device=device)
        self.ranges = predictor.ranges
        self._trigger = {last - 1: index for index, (_, last) in enumerate(predictor.ranges)}

    def reset(self) -> None:
        """Forget the requests."""
        for state in self._states:
            state.zero_()
        self._activation.zero_()

    def routed(self, layer: int, index: torch.Tensor, weights: torch.Tensor) -> None:
        """Note a layer's routing, both [tokens, choices]: Psi of it, the mean over the tokens."""
        share = weights.float()
        share = share / share.sum(-1, keepdim=True).clamp(min=_LEAST) / len(index)
        row = self._activation[layer]
        row.zero_()
        row.scatter_add_(0, index.reshape(-1).long(), share.reshape(-1))

    def forecast(self, layer: int) -> tuple[int, torch.Tensor] | None:
        """At a trigger layer, the first layer of its range and probabilities [lookahead + 1, layers, experts]."""
        if layer not in self._trigger:
            return None
        index = self._trigger[layer]
        first, last = self.ranges[index]
        network, state = self._networks[index], self._states[index]
        seen = network.step(self._activation[first:last][None], state)
        rows = rollout(network, self._confidence[index], seen, self._lookahead, state, self._psi)
        return first, torch.cat(list(rows)).contiguous()
