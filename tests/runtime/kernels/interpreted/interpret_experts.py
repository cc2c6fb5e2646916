"""Protects the experts kernels: every format and activation against float64, with everything else poisoned."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from expert_reference import E2M1_VALUES, random_weights, reference, values

from seqmoe.adapters.mxfp4 import unpack
from seqmoe.runtime.kernels import experts
from seqmoe.runtime.kernels.experts import Tiling, Workspace
from seqmoe.runtime.kernels.library import experts_function
from seqmoe.runtime.kernels.weights import ExpertWeights
from seqmoe.spec.errors import InputError

NAN = float("nan")
# As a GPU tiles: several programs to a matrix, and a last one that is not full.
TILINGS = {"dense": Tiling(16, 8, 64), "fp8": Tiling(16, 32, 128), "mxfp4": Tiling(16, 32, 2)}
SIZES = {"dense": (72, 40), "fp8": (192, 160), "mxfp4": (96, 64)}


def compute(weights, hidden_states, slot_ids, top_k_weights, tiling=None, out_type=torch.float32):
    """Outputs over poison."""
    workspace = Workspace.of(slot_ids.numel(), weights.width)
    workspace.inner.fill_(NAN)
    out = torch.full(hidden_states.shape, NAN, dtype=out_type)
    for call in experts.calls(weights, hidden_states, slot_ids, top_k_weights, workspace, out, tiling):
        call.launch()
    return out


def inputs(weights, tokens, choices, dtype=torch.bfloat16):
    slot_ids = torch.randint(0, weights.slots, (tokens, choices), dtype=torch.int32)
    return torch.randn(tokens, weights.hidden).to(dtype), slot_ids, torch.rand(tokens, choices).to(dtype)


@pytest.mark.parametrize("tiled", [False, True], ids=["whole", "tiled"])
@pytest.mark.parametrize(
    ("format", "activation", "bias"),
    [
        ("dense", "swiglu", False),
        ("dense", "swiglu_oai", True),
        ("fp8", "swiglu", False),
        ("mxfp4", "swiglu_oai", True),
        ("mxfp4", "swiglu_clamped", False),
    ],
)
def test_formats_equal_float64(format, activation, bias, tiled):
    torch.manual_seed(len(format) + tiled)
    weights = random_weights(format, 5, *SIZES[format], bias, activation)
    hidden_states, slot_ids, top_k_weights = inputs(weights, 2, 3)
    slot_ids[1, 1] = -1
    out = compute(weights, hidden_states, slot_ids, top_k_weights, TILINGS[format] if tiled else None)
    expected = reference(weights, hidden_states, slot_ids, top_k_weights)
    assert (out - expected).abs().max() < 2e-6 * expected.abs().max()


@pytest.mark.parametrize("tokens", [1, 4, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_batches_and_types(tokens, dtype):
    torch.manual_seed(tokens)
    weights = random_weights("dense", 7, 24, 16, dtype=dtype)
    arguments = inputs(weights, tokens, 2, dtype)
    out = compute(weights, *arguments, out_type=dtype)
    expected = reference(weights, *arguments)
    rounding = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    assert (out - expected).abs().max() < rounding * expected.abs().max()


def test_ours_can_be_chosen_beside_a_librarys():
    weights = random_weights("mxfp4", 5, 64, 32, activation="swiglu_clamped")
    function = experts_function("triton", weights, rows=8)
    for tokens in (4, 1):
        arguments = inputs(weights, tokens, 2)
        assert torch.equal(function(*arguments), compute(weights, *arguments, out_type=torch.bfloat16))


def test_the_answer_depends_neither_on_slots_nor_on_the_batch():
    torch.manual_seed(0)
    weights = random_weights("dense", 6, 72, 40)
    hidden_states, slot_ids, top_k_weights = inputs(weights, 3, 2)
    out = compute(weights, hidden_states, slot_ids, top_k_weights)
    order = torch.randperm(6)
    moved = random_weights("dense", 6, 72, 40)
    moved.gate_up[order], moved.down[order] = weights.gate_up, weights.down
    there = order[slot_ids.long()].int()
    assert torch.equal(compute(moved, hidden_states, there, top_k_weights), out)
    for token in range(3):
        alone = [each[token : token + 1].contiguous() for each in (hidden_states, slot_ids, top_k_weights)]
        assert torch.equal(compute(weights, *alone)[0], out[token])


@pytest.mark.parametrize("activation", ["swiglu", "swiglu_clamped", "swiglu_oai"])
@pytest.mark.parametrize("row", [0, 8], ids=["gate", "up"])
def test_what_is_no_number_is_not_clamped_away(activation, row):
    weights = random_weights("dense", 1, 16, 8, activation=activation)
    weights.gate_up[0, row] = NAN
    ids, ones = torch.zeros((1, 1), dtype=torch.int32), torch.ones(1, 1)
    assert compute(weights, torch.ones(1, 16), ids, ones).isnan().all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("format", ["fp8", "mxfp4"])
def test_every_code_has_its_value(format):
    """Each code stands in a row of the gate of its own, beside zeros; up's rows are all one, so inner = silu(value)."""
    codes = 256 if format == "fp8" else 16
    hidden, width = 128, 256
    weights = random_weights(format, 1, hidden, width)
    weights.gate_up.view(torch.uint8).zero_()
    one = torch.tensor(1.0).to(torch.float8_e4m3fn).view(torch.uint8) if format == "fp8" else 2
    for code in range(codes):
        weights.gate_up.view(torch.uint8)[0, code, 0] = code
    weights.gate_up.view(torch.uint8)[0, width:, 0] = one
    weights.gate_up_scale.fill_(1.0 if format == "fp8" else 127)
    hidden_states = torch.zeros(1, hidden)
    hidden_states[0, 0] = 1.0
    workspace, out = Workspace.of(1, width), torch.empty(1, hidden)
    arguments = hidden_states, torch.zeros((1, 1), dtype=torch.int32), torch.ones(1, 1), workspace, out
    experts.launch(weights, *arguments)
    code = torch.arange(codes, dtype=torch.uint8)
    value = code.view(torch.float8_e4m3fn).double() if format == "fp8" else E2M1_VALUES
    known = ~value.isnan()
    expected = value * torch.sigmoid(value)
    assert known.sum() == (254 if format == "fp8" else 16)
    assert torch.allclose(workspace.inner[0, :codes].double()[known], expected[known], rtol=2e-6, atol=1e-12)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_scale_has_its_value():
    """e8m0 from 2^-127 to 2^127: each scales a row of up of its own; the gate is 1."""
    scales = torch.tensor([0, 1, 2, 60, 126, 127, 128, 200, 254], dtype=torch.uint8)
    weights = random_weights("mxfp4", 1, 32, 32)
    weights.gate_up.zero_()
    weights.gate_up[0, :, 0] = 2
    weights.gate_up_scale.fill_(127)
    weights.gate_up_scale[0, 32 : 32 + len(scales), 0] = scales
    hidden_states = torch.zeros(1, 32)
    hidden_states[0, 0] = 1.0
    workspace, out = Workspace.of(1, 32), torch.empty(1, 32)
    experts.launch(weights, hidden_states, torch.zeros((1, 1), dtype=torch.int32), torch.ones(1, 1), workspace, out)
    expected = torch.pow(2.0, scales.double() - 127) * torch.sigmoid(torch.tensor(1.0).double())
    assert torch.allclose(workspace.inner[0, : len(scales)].double(), expected, rtol=1e-6, atol=1e-45)


def test_types_of_checkpoints_are_read_as_their_bytes():
    """DeepSeek-V4-Flash stores its experts' bytes as int8 and their scales as float8_e8m0fnu."""
    torch.manual_seed(3)
    weights = random_weights("mxfp4", 3, 64, 32, activation="swiglu_clamped")
    types = {"gate_up": torch.int8, "down": torch.int8}
    types |= {f"{name}_scale": torch.float8_e8m0fnu for name in types}
    stored = replace(weights, **{name: getattr(weights, name).view(dtype) for name, dtype in types.items()})
    arguments = inputs(weights, 2, 2)
    assert torch.equal(compute(stored, *arguments), compute(weights, *arguments))


def test_mxfp4_is_unpacked_as_the_host_does():
    weights = random_weights("mxfp4", 1, 64, 32)
    scales = weights.gate_up_scale[0]
    blocks = weights.gate_up[0].unflatten(-1, (-1, 16))
    assert torch.equal(unpack(blocks, scales).double(), values(weights, "gate_up")[0])


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"format": "int3"}, InputError, "weight format 'int3'"),
        ({"activation": "relu"}, InputError, "activation 'relu'"),
        ({"down": torch.zeros(2, 16, 7)}, ValueError, "down"),
        ({"format": "mxfp4", "width": 12}, ValueError, "blocks of 32"),
        ({"format": "fp8"}, ValueError, "gate_up_scale: None"),
    ],
)
def test_other_weights_are_refused(changes, error, message):
    given = {"format": "dense", "hidden": 16, "width": 8, "gate_up": torch.zeros(2, 16, 16),
             "down": torch.zeros(2, 16, 8)}  # fmt: skip
    ExpertWeights(**given)
    with pytest.raises(error, match=message):
        ExpertWeights(**{**given, **changes})
