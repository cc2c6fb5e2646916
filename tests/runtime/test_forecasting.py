"""Protects what predictors are shown while a model runs: Psi of its routing, step by step, mean over the batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from family_models import CONFIGS, save_tiny

from seqmoe.adapters.base import family_of
from seqmoe.predictor.base import halves
from seqmoe.runtime.engine import Engine
from seqmoe.runtime.forecasting import take_in_prompt
from seqmoe.runtime.retention import Offline
from seqmoe.spec.forecast import Forecast
from seqmoe.spec.system import system

PROMPTS = [[5, 6, 7, 8, 9], [40, 41, 42, 43, 44]]
TOKENS = 6


class Listening:
    """Notes what it is shown, and forecasts nothing in particular."""

    def __init__(self, layers, experts):
        self.layers, self.experts, self.ranges = layers, experts, halves(layers)
        self.seen: dict[int, list[np.ndarray]] = {first: [] for first, _ in self.ranges}

    def reset(self):
        """A new request."""

    def observe(self, activation, first_layer, last_layer):
        """Keeps a copy of these layers."""
        self.seen[first_layer].append(activation[first_layer:last_layer].copy())

    def forecast(self, first_layer, last_layer, lookahead):
        """All the same."""
        return Forecast(np.full((lookahead + 1, last_layer - first_layer, self.experts), 0.2, dtype=np.float32))

    @property
    def activation(self):
        """[steps, layers, experts]."""
        return np.concatenate([np.stack(self.seen[first]) for first, _ in self.ranges], axis=1)


def _psi(model, ids):
    """Softmax over the chosen experts' logits, by hooks on a plain forward: [tokens, layers, experts]."""
    family = family_of(model.config.model_type)
    found = []
    hooks = [
        router.register_forward_hook(lambda module, inputs, output: found.append(family.routing(output)))
        for router in family.routers(model)
    ]
    with torch.no_grad():
        model(torch.tensor([ids]))
    for hook in hooks:
        hook.remove()
    layers = []
    for routing in found:
        logits = routing.logits.reshape(len(ids), -1)
        kept = torch.full_like(logits, -torch.inf).scatter(1, routing.indices, logits.gather(1, routing.indices))
        layers.append(kept.softmax(-1))
    return torch.stack(layers, dim=1).numpy()


@pytest.mark.parametrize("name", CONFIGS)
def test_predictors_are_shown_psi_of_every_token(name, tiny_checkpoint, tmp_path):
    model = save_tiny(name, tmp_path, tiny_checkpoint)
    engine = Engine.load(tmp_path)
    geometry = engine.geometry
    listening = Listening(geometry.layers, geometry.experts)
    popularity = np.full((geometry.layers, geometry.experts), 0.1, dtype=np.float32)
    engine.place(system("seqmoe"), 0.6, listening, None, Offline(popularity))
    results = engine.generate_batch(PROMPTS, TOKENS)
    engine.close()
    expected = [_psi(model, prompt + found.tokens[:-1]) for prompt, found in zip(PROMPTS, results, strict=True)]
    np.testing.assert_allclose(listening.activation, np.mean(expected, axis=0), atol=2e-4)


def test_a_prompt_is_taken_in_at_once_where_the_predictor_can():
    class AtOnce(Listening):
        def prefill(self, activation):
            """Keeps all of it."""
            self.whole = activation

    activation = np.random.default_rng(0).random((5, 4, 6), dtype=np.float32)
    at_once, each = AtOnce(4, 6), Listening(4, 6)
    take_in_prompt(at_once, activation)
    take_in_prompt(each, activation)
    assert np.array_equal(at_once.whole, activation)
    assert np.array_equal(each.activation, activation)
