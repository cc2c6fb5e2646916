"""The one function between routing and experts, registered with Transformers' experts interface as ``seqmoe``."""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from seqmoe.adapters.base import ExpertsModule, Family
from seqmoe.core.moe import moe_experts, reduce_contributions
from seqmoe.runtime.arrays import floats
from seqmoe.runtime.eager import experts_one_by_one
from seqmoe.runtime.emulation import LayerPacer
from seqmoe.runtime.full_load import Placement
from seqmoe.runtime.own_experts import own_experts
from seqmoe.runtime.placement import ExpertPool
from seqmoe.runtime.prompt import PromptEvent
from seqmoe.runtime.timers import StepTimers

NAME = "seqmoe"
_routers: weakref.WeakValueDictionary[int, Router] = weakref.WeakValueDictionary()
_numbers = itertools.count()


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """What one request brings to a layer's experts: states [T, hidden], experts and weights [T, k], the router's logits
    where predictors read those.
    """

    layer: int
    hidden: torch.Tensor
    index: torch.Tensor
    weights: torch.Tensor
    logits: torch.Tensor | None


class Router:
    """Connects the experts modules of one model to a placement, and keeps what was routed if asked to.

    Call `begin_prompt` or `begin_step` before each forward of the model; ``real`` bool [batch, tokens] tells a prompt's
    tokens from padding, and is None in a decode step. ``eager`` computes one expert after another.
    """

    def __init__(self, modules: list[ExpertsModule]) -> None:
        self._placement: Placement | None = None
        self.pacer: LayerPacer | None = None
        self.timers = StepTimers()
        self.eager = False
        self.recorded: list[NDArray[np.int32]] | None = None
        self.position = 0
        self.number = next(_numbers)
        self.real: NDArray[np.bool_] | None = None
        # Where requests whose forwards run beside each other wait for their experts (`seqmoe.runtime.joint`).
        self.meet: Callable[[Arrival], torch.Tensor] | None = None
        self._logits: dict[int, torch.Tensor] = {}
        _routers[self.number] = self
        for layer, module in enumerate(modules):
            module.seqmoe_layer = layer
            module.seqmoe_router = self

    def read_logits(self, routers: list[torch.nn.Module], family: Family) -> None:
        """Show predictors Psi of the routers' own logits: for routers whose weights do not tell it."""
        for layer, module in enumerate(routers):

            def note(module: Any, arguments: Any, output: Any, layer: int = layer) -> None:
                self._logits[layer] = family.routing(output).logits

            module.register_forward_hook(note)

    @property
    def placement(self) -> Placement:
        """Where the experts are; ``RuntimeError`` before a system is placed."""
        if self._placement is None:
            raise RuntimeError("no system is placed yet")
        return self._placement

    @placement.setter
    def placement(self, placement: Placement) -> None:
        self._placement = placement

    def unplace(self) -> None:
        """Let go of the placement and its pool."""
        self._placement = None

    @property
    def placed(self) -> bool:
        """Whether a system was placed."""
        return self._placement is not None

    def begin_prompt(self, real: NDArray[np.bool_]) -> None:
        """The next forward is of prompts that end together."""
        self.real = real
        self.placement.begin_prompt(real.shape[1])

    def begin_step(self) -> int:
        """The next forward is a decode step, one token of each request; returns the position of its layer 0."""
        self.real = None
        self.position = self.placement.begin_step()
        return self.position

    def compute(
        self, layer: int, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """The MoE of one layer, [T, hidden] -> [T, hidden], through whatever slots its experts are in.

        Contributions are kept per (token, k) and summed in router order, so the result does not depend on which slots
        held the experts nor on how many groups a long prompt needed: offloading cannot change the model's answer.
        """
        if self.meet is not None:
            return self.meet(Arrival(layer, hidden_states, top_k_index, top_k_weights, self._logits.get(layer)))
        return self._compute(layer, hidden_states, top_k_index, top_k_weights)

    def compute_together(self, arrivals: list[Arrival]) -> list[torch.Tensor]:
        """`compute` for requests that have all come to the same layer, in one event."""
        layer = arrivals[0].layer
        logits = [each.logits for each in arrivals if each.logits is not None]
        if logits:
            self._logits[layer] = torch.cat([each.reshape(-1, each.shape[-1]) for each in logits])
        hidden, index, weights = (
            torch.cat([getattr(each, name) for each in arrivals]) for name in ("hidden", "index", "weights")
        )
        return list(self._compute(layer, hidden, index, weights).split([len(each.hidden) for each in arrivals]))

    def _compute(
        self, layer: int, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        began = time.perf_counter_ns()
        placement = self.placement
        experts = top_k_index.numpy().astype(np.int32)
        weights, hidden = floats(top_k_weights), floats(hidden_states)
        shares = active_softmax(self._logits[layer], top_k_index) if self._logits else weights
        if self.recorded is not None:
            self.recorded.append(experts)
        out = np.empty_like(hidden)
        contribution = np.empty((*experts.shape, hidden.shape[1]), dtype=np.float32)
        if self.real is None:
            slots = placement.place(layer, experts, shares)
            self.timers.placing_ns += time.perf_counter_ns() - began
            self._experts(hidden, placement.pool, slots, weights, contribution)
            elsewhere = placement.on_host(layer, experts, slots)
            if elsewhere is not None:
                self._experts(hidden, *elsewhere, weights, contribution)
        else:
            contribution[~self.real.ravel()] = 0
            event = PromptEvent(experts, shares, self.real.ravel(), len(self.real))
            for slots in placement.place_prompt(layer, event):
                self._experts(hidden, placement.pool, slots, weights, contribution)
        reduce_contributions(contribution, out)
        if self.pacer is not None:
            self.pacer.layer_done(*placement.take_waits())
        return torch.from_numpy(out).to(hidden_states.dtype)

    def _experts(
        self,
        hidden: NDArray[np.float32],
        pool: ExpertPool,
        slots: NDArray[np.int32],
        weights: NDArray[np.float32],
        contribution: NDArray[np.float32],
    ) -> None:
        if self.eager:
            experts_one_by_one(hidden, pool, slots, weights, contribution)
        else:
            moe_experts(hidden, *pool.arrays, slots, weights, contribution, **pool.options)


def active_softmax(logits: torch.Tensor, index: torch.Tensor) -> NDArray[np.float32]:
    """Psi of the chosen experts, [T, k]: the softmax over their logits alone (`seqmoe.predictor.psi`)."""
    return floats(logits.reshape(-1, logits.shape[-1]).gather(1, index).softmax(-1))


# What a tracer sees of it: one operator without an inside. Running models call `Router.compute` without the detour,
# which would cost 4 us a layer.
_library = torch.library.Library("seqmoe", "FRAGMENT")
_library.define("offloaded_experts(Tensor hidden, Tensor index, Tensor weights, int layer, int router) -> Tensor")
_library.impl("offloaded_experts", lambda h, i, w, layer, router: _routers[router].compute(layer, h, i, w), "CPU")
_library.impl("offloaded_experts", lambda h, i, w, layer, router: torch.empty_like(h), "Meta")


def _experts_forward(
    module: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    router: Router | None = getattr(module, "seqmoe_router", None)
    if router is None:
        return own_experts(module, hidden_states, top_k_index, top_k_weights)
    if type(hidden_states) is not torch.Tensor or torch.compiler.is_compiling():
        traced: torch.Tensor = torch.ops.seqmoe.offloaded_experts(
            hidden_states, top_k_index, top_k_weights, module.seqmoe_layer, router.number
        )
        return traced
    return router.compute(module.seqmoe_layer, hidden_states, top_k_index, top_k_weights)


ALL_EXPERTS_FUNCTIONS.register(NAME, _experts_forward)
