"""Retention policies whose scores the device keeps itself while it decodes.

Each stands beside its host's twin of `seqmoe.runtime.retention_kinds`. The twin does what happens between decode steps
(a new request) after taking over the device's state, and gives it back; what happens in a step are kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqmoe.runtime.kernels.call import Call
from seqmoe.runtime.kernels.expected_use import ExpectedUseState, forecast_call, used_call
from seqmoe.runtime.kernels.fading_mean import mean_call, move_up_call
from seqmoe.runtime.kernels.history import RECENCY_BITS, count_call, fade_call, stamp_call
from seqmoe.runtime.kernels.table import DeviceTable
from seqmoe.runtime.retention import Offline, Retention
from seqmoe.runtime.retention_kinds import retention_of
from seqmoe.simulate.policies.forecast import HORIZON, LAMBDA
from seqmoe.simulate.policies.history import DECAY


class DeviceRetention:
    """Scores that no decode step changes; the others override what they react to.

    ``used`` and ``forecast`` launch kernels only. All else waits for the device, and is for between decode steps.
    """

    # Attributes of the host's twin that have a tensor of their own on the device: arrays, and steps or positions.
    arrays: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    def __init__(self, table: DeviceTable, host: Retention) -> None:
        self.table, self.host = table, host
        self.state = {name: self._tensor(np.asarray(getattr(host, name))) for name in self.arrays}
        self.state |= {name: self._tensor(np.array([getattr(host, name)], dtype=np.int64)) for name in self.numbers}
        self._give()

    def used(self, layer: int, top_k_index: torch.Tensor) -> None:
        """A decode step needs these experts: after `land`, before `plan`. ``top_k_index`` integer [tokens, choices]."""
        for call in self.used_calls(layer, top_k_index):
            call.launch()

    def forecast(self, first: int, probability: torch.Tensor) -> None:
        """What is expected of layers ``first``..., float32 [rows, layers, experts], row 0 for the next step."""
        for call in self.forecast_calls(first, probability):
            call.launch()

    def used_calls(self, layer: int, top_k_index: torch.Tensor) -> tuple[Call, ...]:
        """See `used`."""
        return ()

    def forecast_calls(self, first: int, probability: torch.Tensor) -> tuple[Call, ...]:
        """See `forecast`."""
        return ()

    def begin_request(self, step: int) -> None:
        """A new batch begins with ``step``."""
        self._take()
        self.host.begin_request(step)
        self._give()

    def before_step(self, step: int) -> None:
        """Called before each decode step; waits for the device only where numbers would grow too large."""

    def _tensor(self, array: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(np.array(array, order="C")).to(self.table.score.device)

    def _take(self) -> None:
        self.host.score[:] = self.table.score.cpu().numpy()
        for name in self.arrays:
            setattr(self.host, name, self.state[name].cpu().numpy().copy())
        for name in self.numbers:
            setattr(self.host, name, int(self.state[name]))

    def _give(self) -> None:
        self.table.score.copy_(torch.from_numpy(self.host.score))
        for name in self.arrays:
            self.state[name].copy_(torch.from_numpy(np.asarray(getattr(self.host, name))))
        for name in self.numbers:
            self.state[name].fill_(getattr(self.host, name))


class LeastRecent(DeviceRetention):
    """LRU."""

    numbers = ("_base",)

    def used_calls(self, layer: int, top_k_index: torch.Tensor) -> tuple[Call, ...]:
        """The event's own position."""
        return (stamp_call(self.table, layer, top_k_index, self.state["_base"]),)


class LeastFrequent(DeviceRetention):
    """LFU of the running batch."""

    arrays = ("_count", "_recency")
    numbers = ("_base",)

    def used_calls(self, layer: int, top_k_index: torch.Tensor) -> tuple[Call, ...]:
        """One more."""
        count, recency, base = (self.state[name] for name in ("_count", "_recency", "_base"))
        return (count_call(self.table, layer, top_k_index, count, recency, base),)

    def before_step(self, step: int) -> None:
        """When the positions have filled their bits, the host's twin replaces them by their order."""
        newest = (step + 1) * self.table.layers - self.host._base  # type: ignore[attr-defined]
        if newest >> RECENCY_BITS:
            self._take()
            self.host._start_over(int(self.host._recency.max()))  # type: ignore[attr-defined]
            self._give()


class LeastFrequentWithDecay(DeviceRetention):
    """LFU with decay."""

    arrays = ("_value",)
    numbers = ("_base",)

    def __init__(self, table: DeviceTable, host: Retention) -> None:
        super().__init__(table, host)
        self._rate = self._tensor(np.array([np.log(DECAY)]))

    def used_calls(self, layer: int, top_k_index: torch.Tensor) -> tuple[Call, ...]:
        """A use of weight 1 as of now."""
        value, base = self.state["_value"], self.state["_base"]
        return (fade_call(self.table, layer, top_k_index, value, base, self._rate),)


class CacheScore(DeviceRetention):
    """CacheScore as printed: rows 1 to 8."""

    def __init__(self, table: DeviceTable, host: Retention) -> None:
        super().__init__(table, host)
        self._weights: dict[int, torch.Tensor] = {}

    def forecast_calls(self, first: int, probability: torch.Tensor) -> tuple[Call, ...]:
        """The mean of the rows after the next step's."""
        return (self._mean(probability[1:], self.table.score, first),)

    def _mean(self, rows: torch.Tensor, out: torch.Tensor, first: int) -> Call:
        count = min(len(rows), HORIZON)
        if count not in self._weights:
            weights = (LAMBDA ** np.arange(count)).astype(np.float32)
            self._weights[count] = self._tensor(weights / weights.sum() if count else np.zeros(0, dtype=np.float32))
        return mean_call(rows, self._weights[count], out[first : first + rows.shape[1]])


class CacheScoreNext(CacheScore):
    """CacheScore that counts the next step until the expert's layer has passed."""

    arrays = ("_later",)

    def used_calls(self, layer: int, top_k_index: torch.Tensor) -> tuple[Call, ...]:
        """What was forecast as this step is past."""
        return (move_up_call(self.table, self.state["_later"], layer),)

    def forecast_calls(self, first: int, probability: torch.Tensor) -> tuple[Call, ...]:
        """Rows 0 to 7 now, rows 1 to 8 once the layer's event is over."""
        later = self._mean(probability[1:], self.state["_later"], first)
        return (self._mean(probability, self.table.score, first), later)


class ExpectedUse(DeviceRetention):
    """Forecasts up to their horizon and frequencies beyond it, as fitted or not."""

    arrays = ("_uses", "_later", "_later_unused", "_tail")
    numbers = ("_begin", "_origin")

    def __init__(self, table: DeviceTable, host: Retention) -> None:
        super().__init__(table, host)
        twin: Any = host
        self._ahead, self._ahead_by = self._tensor(twin._ahead), self._tensor(twin._ahead_by)
        self._constants = ExpectedUseState(
            uses=self.state["_uses"],
            later=self.state["_later"],
            later_unused=self.state["_later_unused"],
            tail=self.state["_tail"],
            decays=self._tensor(twin._decays.ravel()),
            frequency=self._tensor(twin._frequency),
            discounts=self._tensor(twin._discounts.ravel()),
            others=self._tensor(np.array([twin._none, twin._constant, twin._fade])),
            begin=self.state["_begin"],
            origin=self.state["_origin"],
        )
        self._kept, self._steps = twin._kept, twin._steps

    def used_calls(self, layer: int, top_k_index: torch.Tensor) -> tuple[Call, ...]:
        """One more step of history."""
        return (used_call(self.table, layer, top_k_index, self._constants, self._kept),)

    def forecast_calls(self, first: int, probability: torch.Tensor) -> tuple[Call, ...]:
        """Every row lies ahead; without row 0, what is left after the next step."""
        ahead = self._ahead, self._ahead_by
        return (forecast_call(self.table, first, probability, self._steps, *ahead, self._constants, self._kept),)


_KINDS: dict[str, type[DeviceRetention]] = {
    "none": DeviceRetention,
    "lru": LeastRecent,
    "lfu": LeastFrequent,
    "lfu_decay": LeastFrequentWithDecay,
    "prefill_hot": DeviceRetention,
    "popularity": DeviceRetention,
    "cache_score": CacheScore,
    "cache_score_next": CacheScoreNext,
    "forecast_tail": ExpectedUse,
    "learned": ExpectedUse,
}


def device_retention(name: str, table: DeviceTable, offline: Offline) -> DeviceRetention:
    """The policy of that name over the scores of ``table``; ``ValueError`` where it lacks what it needs."""
    score = np.zeros((table.layers, table.experts), dtype=np.float32)
    return _KINDS[name](table, retention_of(name, score, offline))
