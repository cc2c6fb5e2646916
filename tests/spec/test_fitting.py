"""What fits onto a GPU, held to sums that are done by hand."""

from __future__ import annotations

import pytest

from seqmoe.spec.fitting import TOKENS, USABLE, fit
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import find_home

GIB = 2**30


@pytest.fixture(scope="module")
def qwen():
    return load_model(find_home(), "qwen3-30b-a3b-fp8")


def test_the_papers_model_on_the_papers_gpu(qwen):
    found = fit(qwen, 24 * GIB, 120 * GIB)
    # 6,144 experts of 4,718,592 bytes: 27 GiB. 24 GiB hold 3 less: non-experts, predictor, cache and the reserve.
    assert found.residencies == (0.15, 0.25, 0.35, 0.45)
    fixed = 2_176_217_088 + 120_000_000 + 98_304 * TOKENS
    assert found.largest == int((USABLE * 24 * GIB - fixed) // 4_718_592 / 6144 * 1e4) / 1e4
    assert found.host_bytes == 6144 * 4_718_592
    assert 24 * GIB - 4_718_592 < found.device_bytes <= 24 * GIB


def test_what_the_gpu_holds_whole_needs_no_pool_on_the_host(qwen):
    assert fit(qwen, 80 * GIB, GIB).residencies == (1.0,)
    assert fit(qwen, 80 * GIB, 64 * GIB).residencies == (0.15, 0.25, 0.35, 0.45, 1.0)


def test_too_small_a_host_and_too_small_a_gpu_are_told_apart(qwen):
    assert fit(qwen, 24 * GIB, 16 * GIB).reason == "host memory: 27.0 GiB are needed, 16.0 GiB are there"
    little = fit(qwen, 2 * GIB, 120 * GIB)
    assert little.reason.startswith("GPU memory: ") and little.largest == 0 and little.residencies == ()


def test_a_longer_context_leaves_less_for_experts(qwen):
    short, long = (fit(qwen, 16 * GIB, 64 * GIB, tokens=tokens).largest for tokens in (128, 32_768))
    assert short > long > 0


def test_a_cache_counts_whole_however_little_of_it_attention_reads():
    deepseek = load_model(find_home(), "deepseek-v4-flash")
    short, long = (fit(deepseek, 96 * GIB, 512 * GIB, tokens=tokens).largest for tokens in (1, 1_000_001))
    # Slots give way to 43 layers x 512 x 2 bytes a token; attention reads an eighth of them.
    given = (short - long) * deepseek.geometry.total_experts * deepseek.expert_bytes
    assert given == pytest.approx(44_032 * 1_000_000, rel=0.01)


def test_a_batch_needs_as_many_slots_as_it_can_ask_for(qwen):
    fixed = 2_176_217_088 + 120_000_000
    room = int((fixed + 98_304 * TOKENS * 4 + 9 * 4_718_592) / USABLE)
    assert fit(qwen, room, 64 * GIB).largest > 0
    assert fit(qwen, room, 64 * GIB, batch=4).largest == 0
