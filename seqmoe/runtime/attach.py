"""For models that Transformers has loaded: its own experts computed by our kernel, or offloaded.

``import seqmoe.runtime.attach`` makes ``from_pretrained(..., experts_implementation="seqmoe")`` known to Transformers.
Such a model computes its experts through `seqmoe.runtime.own_experts`, at full load, until `offload` puts a system on
it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqmoe.adapters.base import Family, family_of
from seqmoe.predictor.load import predictor_for
from seqmoe.runtime.full_load import FullLoad
from seqmoe.runtime.offload import NAME, Router
from seqmoe.runtime.offloaded import Offloaded
from seqmoe.runtime.placement import move_experts_to_host
from seqmoe.runtime.profile import profile_for
from seqmoe.spec import system as systems
from seqmoe.spec.errors import InputError


class Attached:
    """A system on somebody else's model: ``model`` is used as before, ``close()`` ends the prefetch worker."""

    def __init__(self, model: Any, router: Router, family: Family) -> None:
        self.model, self.router, self.family = model, router, family
        self._hook = model.register_forward_pre_hook(self._before, with_kwargs=True)

    def statistics(self) -> dict[str, int | float]:
        """What the pipeline counted so far; nothing at full load."""
        pipeline = self.router.placement.pipeline
        return {} if pipeline is None else pipeline.statistics()

    def close(self) -> None:
        """End the prefetch worker; the model cannot be used any more."""
        self._hook.remove()
        if isinstance(self.router.placement, Offloaded):
            self.router.placement.stop()

    def _before(self, model: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        """A forward of one token per sequence is a decode step; every other is of prompts."""
        given = [options.get("input_ids"), options.get("inputs_embeds"), *arguments]
        shape = next(value for value in given if isinstance(value, torch.Tensor)).shape[:2]
        if shape[1] == 1:
            self.router.begin_step()
            return
        mask = options.get("attention_mask")
        real = np.ones(tuple(shape), dtype=bool)
        if isinstance(mask, torch.Tensor) and mask.dim() == 2 and bool((mask[:, -1] != 0).all()):
            real = (mask[:, -shape[1] :] != 0).numpy()
        self.router.placement.begin_request(shape[0])
        self.router.begin_prompt(real)


def offload(
    model: Any,
    residency: float = 0.45,
    system: str = "seqmoe",
    *,
    predictor: str | Path | None = None,
    profile: str | Path | None = None,
) -> Attached:
    """Move a model's experts into a host pool, and compute them through a slot pool of ``residency``.

    ``model`` is one of a supported family, loaded with ``experts_implementation="seqmoe"``, on the CPU in float32 or
    bfloat16. Raises `InputError` for another.
    """
    config = model.config.get_text_config()
    family = family_of(config.model_type)
    if getattr(config, "_experts_implementation", None) != NAME:
        raise InputError(f"load the model with experts_implementation={NAME!r} before it is offloaded")
    dtype = str(model.dtype).removeprefix("torch.")
    format, geometry = family.expert_format(config, dtype), family.geometry(config, dtype)
    spec = systems.system(system)
    forecaster = predictor_for(spec, predictor)
    offline = profile_for(spec, Path(profile) if profile is not None else None, geometry)
    try:
        geometry.slots(residency)
    except ValueError as error:
        raise InputError(str(error)) from None
    modules = family.experts(model)
    host = move_experts_to_host(modules, family.module_layout, format)
    router = Router(modules)
    if spec.retention == "all":
        router.placement = FullLoad(host, geometry)
    else:
        router.placement = Offloaded(host, geometry, spec, residency, forecaster, offline=offline)
    router.eager = spec.execution == "eager"
    return Attached(model, router, family)
