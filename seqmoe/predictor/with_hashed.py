"""A predictor of the layers that need one, beside the table of the layers that follow from the token."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmoe.predictor.base import Predictor, Ranges, SequenceContext
from seqmoe.predictor.container import Tensors, read_container, write_container
from seqmoe.predictor.hashed import HashTable, kept_layers
from seqmoe.spec.forecast import Forecast

SETTING = "hashed"
_TOKENS, _EXPERTS = "hashed.tokens", "hashed.experts"


class WithHashed:
    """``inner`` forecasts all layers but the table's; its layers are numbered without them.

    Of the next step's token, where `know` was told it (or the context has it), the hashed layers are certain if the
    table has that token; beyond that step, and for other tokens, they have the table's frequencies.
    """

    def __init__(self, inner: Predictor, table: HashTable) -> None:
        self.inner, self.table = inner, table
        self.layers, self.experts = inner.layers + len(table.layers), inner.experts
        self.psi = bool(getattr(inner, "psi", True))
        self._kept = kept_layers(self.layers, table.layers)
        if len(self._kept) != inner.layers:
            raise ValueError(f"hashed layers {table.layers} do not fit {self.layers} layers")
        ends = [int(self._kept[last - 1]) + 1 for _, last in inner.ranges]
        ends[-1] = self.layers
        self.ranges: Ranges = tuple(zip([0, *ends[:-1]], ends, strict=True))
        self._frequency = table.frequency(self.experts)
        self._next = self._frequency

    def reset(self) -> None:
        """Forget the request."""
        self.inner.reset()
        self._next = self._frequency

    def know(self, token: int) -> None:
        """The next step's token, once it is sampled."""
        self._next = self._certain(np.array([token], dtype=np.int32))[0]

    def observe(self, activation: NDArray[np.float32], first_layer: int, last_layer: int) -> None:
        """Take in one step's activation of layers ``first_layer`` to ``last_layer`` (exclusive)."""
        self._next = self._frequency
        first, last = np.searchsorted(self._kept, [first_layer, last_layer]).tolist()
        self.inner.observe(activation[self._kept], first, last)

    def forecast(self, first_layer: int, last_layer: int, lookahead: int) -> Forecast:
        """Probability that each expert of these layers is active in the next step, and in ``lookahead`` more."""
        first, last = np.searchsorted(self._kept, [first_layer, last_layer]).tolist()
        inner = self.inner.forecast(first, last, lookahead)
        whole = np.empty((len(inner.probability), self.layers, self.experts), dtype=np.float32)
        whole[:, self._kept[first:last]] = inner.probability
        whole[:, self.table.layers] = self._frequency
        whole[0, self.table.layers] = self._next
        use = None
        if inner.use is not None:
            use = np.empty((self.layers, self.experts), dtype=np.float32)
            use[self._kept[first:last]] = inner.use
            # The discounted sum of equal chances is that chance; what is certain of the next step is in `probability`.
            use[self.table.layers, :] = self._frequency
            use = use[first_layer:last_layer]
        return Forecast(whole[:, first_layer:last_layer], first_layer, use)

    def forecast_sequence(
        self,
        activation: NDArray[np.float32],
        lookahead: int,
        stride: int = 1,
        context: SequenceContext | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """All forecasts of one request, see `seqmoe.predictor.base.Predictor`."""
        context = context or SequenceContext()
        early = None if context.early is None else context.early[:, self._kept]
        chosen, inner = self.inner.forecast_sequence(
            activation[:, self._kept], lookahead, stride, SequenceContext(context.token_ids, early)
        )
        whole = np.empty((*inner.shape[:2], self.layers, self.experts), dtype=np.float32)
        whole[:, :, self._kept] = inner
        whole[:, :, self.table.layers] = self._frequency
        if context.token_ids is not None:
            followed = chosen + 1 < len(activation)
            rows = self._certain(context.token_ids[chosen[followed] + 1])
            whole[np.flatnonzero(followed)[:, None], 0, np.array(self.table.layers)[None]] = rows
        return chosen, whole

    def save(self, path: Path, training: dict[str, Any] | None = None) -> None:
        """Write both as one predictor file of the inner predictor's kind, whole or not at all."""
        with tempfile.TemporaryDirectory() as folder:
            self.inner.save(Path(folder) / "inner", training)
            about, tensors = read_container(Path(folder) / "inner")
        kind, geometry = about["kind"], about["geometry"]
        settings = about["settings"] | {SETTING: {"layers": list(self.table.layers), "ranges": about["ranges"]}}
        outer: dict[str, Any] = {
            "geometry": geometry | {"layers": self.layers},
            "ranges": self.ranges,
            "settings": settings,
            "training": about["training"],
        }
        tables: Tensors = {_TOKENS: self.table.tokens, _EXPERTS: self.table.experts}
        write_container(path, kind, tensors | tables, outer)

    def _certain(self, token_ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """Probabilities of the hashed layers, float32 [n, hashed layers, experts]."""
        known, experts = self.table.find(token_ids)
        rows = np.repeat(self._frequency[None], len(token_ids), axis=0)
        certain = np.zeros((len(experts), *self._frequency.shape), dtype=np.float32)
        np.put_along_axis(certain, experts.astype(np.int64), 1, axis=-1)
        rows[known] = certain
        return rows


def split_description(about: dict[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Tensors, HashTable | None]:
    """The inner predictor's description and tensors, and the table, None where the file has none."""
    if SETTING not in about["settings"]:
        return about, tensors, None
    settings = dict(about["settings"])
    hashed = settings.pop(SETTING)
    inner = {name: tensor for name, tensor in tensors.items() if name not in (_TOKENS, _EXPERTS)}
    table = HashTable(tuple(hashed["layers"]), tensors[_TOKENS], tensors[_EXPERTS])
    geometry = about["geometry"] | {"layers": about["geometry"]["layers"] - len(table.layers)}
    return about | {"geometry": geometry, "settings": settings, "ranges": hashed["ranges"]}, inner, table
