"""Whether what a replay study declares exists and fits together: said with the file and the key, before a cell runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seqmoe.simulate.policies import Policy, policy_of
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import Home
from seqmoe.spec.prediction import TRAINED
from seqmoe.spec.replay import ReplayBlock, ReplaySuite, experts_per_layer


def check_replay(suite: ReplaySuite, path: Path, home: Home) -> None:
    """Raise `InputError` for what a block names that is unknown, or does not fit the rest of it."""
    for name, profile in suite.profile.items():
        for index, block in enumerate(profile.block):
            for key, fault in _faults(block, home):
                raise InputError(f"{path}: profile.{name}.block[{index}]: {key}: {fault}")


def _faults(block: ReplayBlock, home: Home) -> Iterator[tuple[str, str]]:
    """A key and what is wrong with its value, the first first."""
    policies: list[Policy] = []
    for name in block.policies:
        try:
            policies.append(policy_of(name))
        except InputError as error:
            yield "policies", str(error).removeprefix("--policies: ")
    for link in block.links:
        try:
            experts_per_layer(home, link)
        except InputError as error:
            yield "links", str(error)
    prefetching = [policy.name for policy in policies if policy.prefetch is not None]
    if prefetching and not block.links:
        yield "links", f"{prefetching[0]!r} prefetches: it would have no rows; name one, for example 'rtx4090'"
    if block.links and not prefetching:
        yield "links", f"{', '.join(block.links)}: no policy of the block prefetches; leave them out"
    forecasting = [policy.name for policy in policies if policy.forecasts]
    if forecasting and not block.predictor:
        yield "predictor", f"{forecasting[0]!r} works on forecasts; name one, for example 'mamba2'"
    if block.predictor == "early_router":
        yield "predictor", "'early_router' looks a layer ahead, not a token; name another"
    direct = [policy.name for policy in policies if "use" in policy.needs]
    if direct and block.predictor not in TRAINED:
        yield "predictor", f"{block.predictor!r}: {direct[0]!r} needs one that is trained: {' or '.join(TRAINED)}"
    if block.contract == "sequential" and max(block.batches) > 1:
        yield "batches", f"{max(block.batches)}: accesses have an order within one request only; leave it at 1"
