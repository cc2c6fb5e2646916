"""What every imported trace must satisfy, said once: ids in range, no expert twice, weights that add up, whole rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import MISSING

# Weights printed from bfloat16 have 8 bits: four that sum to 1 were seen at 0.998, so 1 % is slack enough and no more.
TOLERANCE = 0.01
_LARGEST = int(np.iinfo(np.int16).max)

Where = Callable[[int, int], str]


def at(source: str) -> Where:
    """Names a place by its token and layer, counted from 0."""
    return lambda token, layer: f"{source}: token {token}, layer {layer}"


def expert_ids(values: Any, where: str) -> list[int]:
    """A list of expert ids as a source gives it, or `InputError`."""
    if not isinstance(values, list) or not values:
        raise InputError(f"{where}: expected a list of expert ids, got {str(values)[:80]!r}")
    for value in values:
        if type(value) is not int or not 0 <= value <= _LARGEST:
            raise InputError(f"{where}: expert id {value!r}: expected a whole number from 0 to {_LARGEST}")
    return list(values)


def router_weights(values: Any, count: int, where: str) -> list[float]:
    """A list of ``count`` weights as a source gives it, or `InputError`."""
    if not isinstance(values, list) or len(values) != count:
        raise InputError(f"{where}: expected {count} weights, one for each expert, got {str(values)[:80]!r}")
    for value in values:
        if type(value) not in (int, float):
            raise InputError(f"{where}: weight {value!r}: expected a number")
    return [float(value) for value in values]


def whole_number(value: Any, where: str, below: int | None = None) -> int:
    """A number counted from 0 and, where told, smaller than ``below``; or `InputError`."""
    if type(value) is not int or value < 0:
        raise InputError(f"{where} = {value!r}: expected a whole number, counted from 0")
    if below is not None and value >= below:
        raise InputError(f"{where} = {value}: expected a number below {below}")
    return value


def routing(experts: NDArray[Any], count: int, where: Where) -> None:
    """Check ids [steps, layers, k] against ``count`` experts per layer; ``where(step, layer)`` names a place.

    Raises `InputError` for an id outside 0 to count - 1, an expert that occurs twice in one token's layer, and a row
    of which only some ids are `MISSING`.
    """
    absent = experts == MISSING
    _first(~absent & ((experts < 0) | (experts >= count)), experts, where, f"expert {{}} is outside 0 to {count - 1}")
    partial = absent.any(-1) & ~absent.all(-1)
    if partial.any():
        step, layer = np.argwhere(partial)[0]
        raise InputError(f"{where(step, layer)}: fewer experts than elsewhere; is the file truncated?")
    ordered = np.sort(experts, axis=-1)
    twice = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] != MISSING)
    _first(twice, ordered[..., 1:], where, "expert {} appears twice for one token and layer")


def weights(values: NDArray[Any], experts: NDArray[Any], router: str, where: Where, tolerance: float) -> None:
    """Check weights of the shape of ``experts``: finite, not negative, and 1 in sum where the router renormalises.

    A router of unknown kind is taken to renormalise if half of its rows say so; then the others are errors.
    """
    _first(~np.isfinite(values), values, where, "weight {:g}: expected a finite number")
    _first(values < 0, values, where, "weight {:g}: expected no negative number")
    present = (experts != MISSING).all(-1)
    total = values.sum(-1, dtype=np.float64)
    apart = np.abs(total - 1) > tolerance
    if router == "softmax_renormalised" or (router == "unknown" and (apart & present).sum() * 2 <= present.sum()):
        wrong = apart & present
        if wrong.any():
            step, layer = np.argwhere(wrong)[0]
            raise InputError(f"{where(step, layer)}: weights add up to {total[step, layer]:.4f} instead of 1")


def _first(wrong: NDArray[np.bool_], values: NDArray[Any], where: Where, message: str) -> None:
    if wrong.any():
        step, layer, rank = np.argwhere(wrong)[0]
        raise InputError(f"{where(step, layer)}: {message.format(values[step, layer, rank])}")
