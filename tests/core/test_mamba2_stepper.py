"""Protects the Mamba2 stepper's arguments: shapes that do not fit are named, arrays are kept alive."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from seqmoe.core.mamba2 import Mamba2Block, Mamba2Stepper

LAYERS, EXPERTS, HIDDEN, INNER, HEADS, STATE, TAPS = 2, 5, 16, 32, 4, 16, 4
WIDTH, CONVOLVED = LAYERS * EXPERTS, INNER + 2 * STATE
SHAPES = {
    "norm": (HIDDEN,), "in_proj": (INNER + CONVOLVED + HEADS, HIDDEN), "conv_weight": (TAPS, CONVOLVED),
    "conv_bias": (CONVOLVED,), "dt_bias": (HEADS,), "a": (HEADS,), "skip": (HEADS,), "gate_norm": (INNER,),
    "out_proj": (HIDDEN, INNER),
}  # fmt: skip


def ones(*shape: int) -> np.ndarray:
    return np.full(shape, 0.1, dtype=np.float32)


def block(**changed: tuple[int, ...]) -> Mamba2Block:
    return Mamba2Block(**{name: ones(*changed.get(name, shape)) for name, shape in SHAPES.items()})


def stepper(blocks=None, **changed) -> Mamba2Stepper:
    given = {
        "experts": EXPERTS, "top_k": 2, "enter": (ones(WIDTH, HIDDEN), ones(HIDDEN)), "norm": ones(HIDDEN),
        "blocks": [block()] if blocks is None else blocks, "leave": (ones(WIDTH, HIDDEN), ones(WIDTH)),
    }  # fmt: skip
    return Mamba2Stepper(**given | changed)


def test_it_keeps_its_arrays_and_its_views_keep_it():
    made = stepper(use=(ones(WIDTH, HIDDEN), ones(WIDTH)))
    [(window, scan)] = made.states
    assert window.shape == (TAPS, CONVOLVED) and scan.shape == (HEADS, INNER // HEADS, STATE)
    gc.collect()
    made.observe(ones(LAYERS, EXPERTS))
    logits, use = made.logits, made.use
    del made
    gc.collect()
    assert np.isfinite(logits).all() and np.array_equal(logits, use)
    assert np.array_equal(window[:-1], np.zeros((TAPS - 1, CONVOLVED))) and (window[-1] != 0).all() and scan.any()


@pytest.mark.parametrize("name", [name for name in SHAPES if name not in ("a", "out_proj", "conv_weight")])
def test_a_block_of_another_shape_is_named(name):
    shape = (SHAPES[name][0] + 1, *SHAPES[name][1:])
    with pytest.raises(ValueError, match=f"^{name} must be"):
        stepper([block(**{name: shape})])


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"top_k": 6}, "top_k must be 1 to experts"),
        ({"experts": 4}, "enter must be"),
        ({"blocks": []}, "at least one block"),
        ({"blocks": [block(), block(out_proj=(HIDDEN, INNER + 16))]}, "out_proj must be"),
        ({"blocks": [block(conv_weight=(TAPS, CONVOLVED - 16))]}, "multiples of 16"),
        ({"norm": ones(HIDDEN - 1)}, "norm must be"),
        ({"leave": (ones(WIDTH, HIDDEN), ones(HIDDEN))}, "leave must be"),
        ({"use": (ones(WIDTH - 1, HIDDEN), ones(WIDTH))}, "use must be"),
        ({"instructions": "mmx"}, "not 'mmx'"),
    ],
)
def test_what_does_not_fit_is_refused(changed, words):
    with pytest.raises(ValueError, match=words):
        stepper(**changed)


def test_other_types_are_refused():
    with pytest.raises(TypeError):
        stepper(norm=np.ones(HIDDEN))
