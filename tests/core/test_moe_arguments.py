"""Protects the CPU kernel from what does not fit: refused before anything is written, never converted in silence."""

from __future__ import annotations

import numpy as np
import pytest
from moe_case import MoeCase

from seqmoe.core.moe import instruction_sets, moe_experts, reduce_contributions


@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize("instructions", instruction_sets())
def test_rows_with_a_negative_slot_are_left_alone(instructions, bfloat16):
    case = MoeCase(0, bfloat16=bfloat16)
    case.index[1, 2] = case.index[0, 0] = -1
    case.index[2] = -7
    untouched = np.isnan(case.run(instructions=instructions)).all(-1)
    assert (untouched == (case.index < 0)).all()
    assert not np.isnan(case.run(instructions=instructions)[case.index >= 0]).any()


@pytest.mark.parametrize(("tokens", "choices"), [(0, 4), (3, 0)])
def test_nothing_to_do(tokens, choices):
    case = MoeCase(0)
    contribution = np.empty((tokens, choices, 40), dtype=np.float32)
    index, weights = np.empty((tokens, choices), np.int32), np.empty((tokens, choices), np.float32)
    case.run(contribution, x=case.x[:tokens], index=index, weights=weights)


@pytest.mark.parametrize(
    ("name", "wrong", "error", "message"),
    [
        ("x", lambda a: a[:2], ValueError, "slots must be"),
        ("x", lambda a: a[:, :-1].copy(), ValueError, "gate_up must be"),
        ("x", lambda a: a[:, ::2], TypeError, None),
        ("x", lambda a: a.astype(np.float64), TypeError, None),
        ("gate_up", lambda a: a[:, :-1].copy(), ValueError, "gate_up must be"),
        ("gate_up", lambda a: a[:-1], ValueError, "down must be"),
        ("gate_up", lambda a: a.astype(np.float64), TypeError, "expert weights must be float32"),
        ("gate_up", lambda a: a.astype(np.uint16), TypeError, "the same type"),
        ("gate_up", lambda a: np.asfortranarray(a), TypeError, None),
        ("down", lambda a: a[:, :-1].copy(), ValueError, "down must be"),
        ("down", lambda a: a.astype(np.float16), TypeError, "expert weights must be float32"),
        ("down", lambda a: a.astype(np.int16), TypeError, "expert weights must be float32"),
        ("index", lambda a: a + 7, ValueError, "outside the pool"),
        ("weights", lambda a: a[:, :-1].copy(), ValueError, "weights must be"),
        ("gate_up_bias", lambda a: a[:, :-1].copy(), ValueError, "gate_up_bias must be"),
        ("down_bias", lambda a: a[:-1], ValueError, "down_bias must be"),
        ("down_bias", lambda a: a.astype(np.uint16), TypeError, "type of the expert weights"),
    ],
)
def test_what_does_not_fit_is_refused(name, wrong, error, message):
    case = MoeCase(0, bias=True)
    contribution = np.zeros((3, 4, 40), dtype=np.float32)
    with pytest.raises(error, match=message):
        case.run(contribution, **{name: wrong(getattr(case, name))})
    assert (contribution == 0).all()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"activation": "gelu"}, "not 'gelu'"),
        ({"limit": 7.0}, "limit belongs to"),
        ({"alpha": 1.7}, "alpha belongs to"),
        ({"activation": "swiglu_clamped"}, "needs a limit"),
        ({"activation": "swiglu_clamped", "limit": float("nan")}, "needs a limit"),
        ({"activation": "swiglu_clamped", "limit": 7.0, "alpha": 1.7}, "alpha belongs to"),
        ({"activation": "swiglu_oai", "limit": 7.0}, "needs an alpha"),
        ({"instructions": "sse9"}, "portable on this machine, not 'sse9'"),
    ],
)
def test_unknown_names_and_useless_numbers_are_refused(names, message):
    case = MoeCase(0)
    with pytest.raises(ValueError, match=message):
        moe_experts(case.x, case.gate_up, case.down, case.index, case.weights, case.poisoned(), **names)


@pytest.mark.parametrize(("shape", "dtype"), [((3, 4, 39), "f4"), ((3, 3, 40), "f4"), ((3, 4, 40), "f8")])
def test_a_wrong_output_is_refused_rather_than_copied(shape, dtype):
    case = MoeCase(0)
    with pytest.raises((ValueError, TypeError)):
        case.run(np.zeros(shape, dtype))
    with pytest.raises((ValueError, TypeError)):
        reduce_contributions(case.run(), np.zeros((3, 40 if dtype == "f8" else 38), dtype))
