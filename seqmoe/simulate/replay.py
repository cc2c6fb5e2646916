"""The hit-rate replay: traces, policies and a residency in, hit rates and bytes under the project's contract out.

The clock is of units: an event's layer computes for 1, during which the link moves ``link`` experts of prefetches.
Loads on demand stop the clock, so that a hit rate depends on no speed but that ratio.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmoe.core.simulate import PrefetchRules
from seqmoe.predictor.base import Predictor
from seqmoe.predictor.popularity import frequency_of
from seqmoe.simulate.batch import Batch, batches
from seqmoe.simulate.blocks import Blocks
from seqmoe.simulate.counting import Run, Tally
from seqmoe.simulate.foresight import foresight_of, likely, tasks_of
from seqmoe.simulate.options import CONTRACTS, ReplayOptions, check, check_length, slots_of
from seqmoe.simulate.policies import POLICIES, Foresight, Policy, Routing, Scores, policy_of
from seqmoe.simulate.policies.by_access import BY_ACCESS, Accesses, places
from seqmoe.simulate.policies.learned import fit
from seqmoe.simulate.rows import ReplayRow, row_of
from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import RequestTrace, TraceSet

__all__ = ["CONTRACTS", "ReplayOptions", "ReplayRow", "fitted_weights", "replay_traces"]

# What a policy recovers lies between them: they are counted always, without prefetching.
_LEAST, _BOUND = "lru", "belady"
# Requests that weights are fitted to; with more, no hit rate changed by 0.1 points.
_FITTED_REQUESTS = 24


def replay_traces(
    traces: TraceSet,
    policies: Sequence[str | Policy],
    residencies: Sequence[float],
    options: ReplayOptions | None = None,
    *,
    predictor: Predictor | None = None,
    fitted_on: TraceSet | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[ReplayRow]:
    """Replay every batch from a cold pool, and add up the counts of the decode steps after the warm-up.

    ``policies`` are names (see `seqmoe.simulate.policies`) or policies of one's own. Requests are read one by one.
    ``fitted_on`` are other traces of the model, for policies that are fitted to some. ``progress`` is told the requests
    done and in all. Rows are by policy, link and residency, in the order asked for. Raises `InputError` for what does
    not fit together.
    """
    options = options or ReplayOptions()
    chosen = [policy_of(policy) if isinstance(policy, str) else policy for policy in policies]
    slots = slots_of(traces, residencies)
    check(chosen, traces, options, predictor, fitted_on)
    run = _Replay(traces, chosen, slots, options, predictor, fitted_on)
    total, done = len(traces.requests), 0
    for batch in batches(traces.requests, traces.experts, options.batch, options.stagger, options.warm_up):
        run.add(batch)
        done += len(batch.requests)
        if progress is not None:
            progress(done, total)
    return run.rows()


def fitted_weights(traces: TraceSet, predictor: Predictor) -> NDArray[np.float32]:
    """The weights of the policy ``learned``, fitted to some of ``traces`` with the forecasts of ``predictor``."""
    count = len(traces.requests)
    picks = np.unique(np.linspace(0, count - 1, min(count, _FITTED_REQUESTS)).round().astype(int))

    def routings() -> Iterator[Routing]:
        for batch in batches(_picked(traces, picks), traces.experts):
            yield _routing(batch, traces.top_k, foresight_of(batch, predictor, traces))

    return fit(routings())


class _Replay:
    """The tallies of a replay while it goes through the batches."""

    def __init__(
        self,
        traces: TraceSet,
        policies: Sequence[Policy],
        slots: dict[float, int],
        options: ReplayOptions,
        predictor: Predictor | None,
        fitted_on: TraceSet | None,
    ) -> None:
        self._traces, self._asked, self._slots, self._options = traces, policies, slots, options
        self._policies = {name: policy_of(name) for name in (_LEAST, _BOUND)} | {one.name: one for one in policies}
        self._predictor = predictor if any(policy.forecasts for policy in policies) else None
        self._tallies = {
            (name, residency, link): Tally()
            for name, policy in self._policies.items()
            for residency in slots
            for link in self._links(policy)
        }
        needs = {need for policy in policies for need in policy.needs}
        self._popularity = self._weights = None
        if fitted_on is not None and "popularity" in needs:
            self._popularity = frequency_of(fitted_on)
        if fitted_on is not None and predictor is not None and "weights" in needs:
            self._weights = fitted_weights(fitted_on, predictor)

    def add(self, batch: Batch) -> None:
        """Run every policy at every residency over one batch."""
        blocks = Blocks(batch)
        self._check_room(blocks.largest)
        arrays = [policy for policy in self._policies.values() if not _by_access(policy)]
        for policy in self._policies.values():
            if _by_access(policy):
                self._add_by_access(policy, batch, blocks)
        if arrays:
            check_length(batch, self._traces, arrays, self._predictor is not None)
            self._add_arrays(arrays, batch, blocks)

    def _add_by_access(self, policy: Policy, batch: Batch, blocks: Blocks) -> None:
        """A policy of `BY_ACCESS`, in the memory of a block."""
        layers, experts = self._traces.layers, self._traces.experts
        sequential = self._options.contract == "sequential"

        def read(index: int) -> Accesses:
            return blocks[index].events.accesses(layers, experts, sequential)

        scores = BY_ACCESS[policy.name](layers * experts, len(blocks), read)
        runs = {
            residency: Run((layers, experts, slots), None, sequential, batch)
            for residency, slots in self._slots.items()
        }
        for index, block in enumerate(blocks):
            before, accessed = places(*scores.values(index, block.events.accesses(layers, experts, sequential)))
            for run in runs.values():
                run.feed_accessed(block, before, accessed)
        for residency, run in runs.items():
            self._tallies[policy.name, residency, 0.0].add(run.counts())

    def _add_arrays(self, policies: Sequence[Policy], batch: Batch, blocks: Blocks) -> None:
        """Policies whose scores are arrays over the whole batch."""
        traces, sequential = self._traces, self._options.contract == "sequential"
        foresight = None if self._predictor is None else foresight_of(batch, self._predictor, traces)
        tasks = None if foresight is None else tasks_of(foresight, traces.top_k)
        routing = _routing(batch, traces.top_k, foresight, self._popularity, self._weights)
        for policy in policies:
            scores = Scores()
            for index, (residency, slots) in enumerate(self._slots.items()):
                if policy.by_residency or not index:
                    scores = policy.score(replace(routing, residency=residency, slots=slots)).checked(policy, routing)
                for link in self._links(policy):
                    rules, chosen = None, None
                    if policy.prefetch is not None and tasks is not None and link:
                        rules = PrefetchRules(link=link, order=policy.prefetch, reserve=policy.reserve)
                        chosen = likely(tasks, policy.least_confidence)
                    run = Run((traces.layers, traces.experts, slots), rules, sequential, batch, foresight, chosen)
                    for block in blocks:
                        run.feed(block, scores)
                    self._tallies[policy.name, residency, link].add(run.counts())

    def rows(self) -> list[ReplayRow]:
        """One row for each policy, residency and link."""
        traces, options = self._traces, self._options
        first = next(iter(self._tallies.values()))
        if not first.total("tokens"):
            left = f" after a warm-up of {options.warm_up}" if options.warm_up else ""
            raise InputError(f"{traces.model}: the trace has no decode steps to count{left}")
        if not first.total("needed"):
            raise InputError(f"{traces.model}: no decode step of the trace has its experts")
        found = []
        for policy in self._asked:
            for link in self._links(policy):
                for residency, slots in self._slots.items():
                    lru, belady = (self._tallies[name, residency, 0.0].rate for name in (_LEAST, _BOUND))
                    shared: dict[str, Any] = {"policy": policy.name, "residency": residency, "slots": slots}
                    shared |= {"contract": options.contract, "link": None if math.isinf(link) else link}
                    tally = self._tallies[policy.name, residency, link]
                    found.append(row_of(tally, traces.expert_bytes, lru, belady, shared))
        return found

    def _check_room(self, largest: int) -> None:
        most = 1 if self._options.contract == "sequential" else largest
        for residency, slots in self._slots.items():
            if slots < most:
                raise InputError(
                    f"--residency {residency:g}: {slots} slots, but a batch of {self._options.batch} needs up to "
                    f"{most} experts of a layer at once; give more, or a smaller --batch"
                )

    def _links(self, policy: Policy) -> tuple[float, ...]:
        return (0.0,) if policy.prefetch is None else self._options.links


def _by_access(policy: Policy) -> bool:
    return policy.name in BY_ACCESS and policy == POLICIES[policy.name]


def _routing(
    batch: Batch,
    top_k: int,
    foresight: Foresight | None,
    popularity: NDArray[np.float32] | None = None,
    weights: NDArray[np.float32] | None = None,
) -> Routing:
    """What policies are shown of a batch; residency and slots are 0 until one is chosen."""
    return Routing(batch.active(), batch.counted, top_k, 0.0, 0, foresight, popularity, weights)


def _picked(traces: TraceSet, indices: Iterable[int]) -> Iterator[RequestTrace]:
    return (traces.requests[int(index)] for index in indices)
