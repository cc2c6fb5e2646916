"""Protects the decode step from waiting for values on the device: no operator that hides it runs, for any family."""

from __future__ import annotations

import pytest
import torch
from family_models import CONFIGS, save_tiny
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from seqmoe.runtime.cache import Batch
from seqmoe.runtime.emulation import LayerPacer
from seqmoe.runtime.engine import Engine
from seqmoe.spec.system import system

# Their result's value or shape is read by the host.
FORBIDDEN = {
    "_local_scalar_dense", "nonzero", "nonzero_numpy", "is_nonzero", "item", "equal", "masked_select", "_unique2",
    "unique_dim", "unique_consecutive", "argwhere",
}  # fmt: skip
PROMPTS = [list(range(1, 12)), list(range(30, 36))]
# What may be kept or measured of a step.
STATISTICS = ("nothing", "recorded", "paced")


class Watched(TorchDispatchMode):
    """Collects the forbidden operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        name = function.overloadpacket.__name__
        self.names.append(name)
        masks = name in ("index", "index_put", "index_put_") and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in arguments[1]
        )
        if name in FORBIDDEN or masks:  # a mask as an index is a hidden nonzero
            self.found.append(name)
        return function(*arguments, **(options or {}))


@pytest.fixture(scope="module", params=CONFIGS)
def engine(request, tiny_checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    save_tiny(request.param, folder, tiny_checkpoint)
    engine = Engine.load(folder)
    yield engine
    engine.close()


def _steps(engine, prompts, watch, steps=3):
    """Prompts unwatched, then some decode steps inside ``watch``."""
    decoder, router = engine._decoder, engine.router
    batch = Batch(prompts, steps + 1)
    cache = decoder.new_cache(batch.length)
    router.placement.begin_request(len(prompts))
    router.begin_prompt(batch.real)
    _, ids = decoder.step(batch.ids, batch, cache, 0)
    for index in range(1, steps + 1):
        router.begin_step()
        with watch:
            _, ids = decoder.step(ids, batch, cache, index)
    return ids


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize(("placed", "batch"), [("full", 1), ("lru", 1), ("lru", 2)])
def test_no_operator_waits_for_a_value(engine, placed, batch, statistic):
    prompts = PROMPTS[:batch] if engine.checkpoint.family.static_cache else PROMPTS[:1] * batch
    engine.place(system(placed), 0.5, None, None)
    engine.router.recorded = [] if statistic == "recorded" else None
    engine.pacer = LayerPacer(1e-4, 0.0) if statistic == "paced" else None
    watched = Watched()
    _steps(engine, prompts, watched)
    engine.router.recorded, engine.pacer = None, None
    assert len(watched.names) > 100
    assert not watched.found


def test_the_watch_sees_what_is_hidden():
    owner, chance = torch.arange(4), torch.rand(4)
    with Watched() as watched:
        owner[chance > 0.5].sum()
        int(chance.argmax())
    assert {"index", "_local_scalar_dense"} <= set(watched.found)
    with FakeTensorMode() as fake, pytest.raises(DataDependentOutputException):
        int(fake.from_tensor(chance).argmax())


def test_tracers_see_the_experts_as_one_operator(engine):
    """Under fake tensors nothing of the offload function runs: its shape is all that is known."""
    engine.place(system("lru"), 0.5, None, None)
    experts = engine.checkpoint.family.experts(engine._decoder._model)
    before = engine.offloaded.pipeline.statistics()["events"]
    with FakeTensorMode() as fake:
        hidden = fake.from_tensor(torch.rand(1, 32))
        index = fake.from_tensor(torch.zeros(1, 3, dtype=torch.long))
        weights = fake.from_tensor(torch.rand(1, 3))
        with Watched() as watched:
            out = experts[0](hidden, index, weights)
    assert out.shape == hidden.shape
    assert "offloaded_experts" in watched.names
    assert not watched.found
    assert engine.offloaded.pipeline.statistics()["events"] == before
