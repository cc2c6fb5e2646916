"""Protects the training of predictors: it learns, resumes to the same result, and its parts do what they say."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from cycling_traces import EXPERTS, TOP_K, cycling
from predictor_samples import random_request, trace_set
from safetensors import safe_open
from safetensors.torch import save

from seqmoe.predictor.base import step_by_step
from seqmoe.predictor.kinds import load_predictor
from seqmoe.predictor.psi import activations
from seqmoe.predictor.training import TrainingOptions, train_predictor
from seqmoe.predictor.training import loop as training_loop
from seqmoe.predictor.training.batches import BatchSource
from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import MISSING

BUDGET = 40_000
SMALL = {"hidden": 32, "blocks": 1, "batch": 4, "learning_rate": 5e-3}


def _options(kind="mamba2", tokens=BUDGET, **changes):
    return TrainingOptions(kind, tokens=tokens, **(SMALL | changes))


@pytest.fixture(scope="module")
def learned():
    return {kind: train_predictor(cycling(), cycling(6, seed=9), _options(kind)) for kind in ("mamba2", "transformer")}


@pytest.mark.parametrize("kind", ["mamba2", "transformer"])
def test_a_cycle_is_learned_and_rolled_out(learned, kind):
    predictor, record = learned[kind]
    assert record["curve"][-1]["recall"] > 0.99
    assert record["curve"][-1]["tokens"] == record["tokens"]
    right = []
    for request in cycling(8, seed=77).requests:
        activation = activations(request, EXPERTS)
        active = activation > 0
        positions, probability = predictor.forecast_sequence(activation, lookahead=7, stride=5)
        for t, row in zip(positions, probability, strict=True):
            for j in range(min(8, len(active) - t - 1)):
                top = np.argsort(-row[j], axis=-1)[:, :TOP_K]
                right.append(np.take_along_axis(active[t + 1 + j], top, -1).mean())
    assert np.mean(right) > (0.95 if kind == "mamba2" else 0.8)


@pytest.mark.parametrize("kind", ["mamba2", "transformer"])
def test_whole_sequences_and_single_steps_agree(learned, kind):
    predictor, _ = learned[kind]
    [request] = cycling(1, steps=30, seed=5, noise=0.2).requests
    activation = activations(request, EXPERTS)
    _, slow = step_by_step(predictor, activation, 3, stride=4)
    _, fast = predictor.forecast_sequence(activation, 3, stride=4)
    np.testing.assert_allclose(fast, slow, atol=2e-4)
    predictor.reset()
    predictor.prefill(activation[:9])
    for first, last in predictor.ranges:
        probability = predictor.forecast(first, last, 3).probability
        np.testing.assert_allclose(probability, slow[2, :, first:last], atol=2e-4)


def test_a_forecast_leaves_the_state_as_it_was(learned):
    predictor, _ = learned["mamba2"]
    first, last = predictor.ranges[1]
    row = activations(cycling(1).requests[0], EXPERTS)[0]
    predictor.reset()
    predictor.observe(row, first, last)
    once = predictor.forecast(first, last, 7)
    again = predictor.forecast(first, last, 7)
    assert np.array_equal(once.probability, again.probability)
    assert once.use is not None and np.array_equal(once.use, again.use)


@pytest.mark.parametrize("kind", ["mamba2", "transformer"])
def test_a_saved_predictor_comes_back(learned, kind, tmp_path):
    predictor, record = learned[kind]
    path = tmp_path / "predictor.safetensors"
    predictor.save(path, record)
    back = load_predictor(path)
    activation = activations(cycling(1, steps=20).requests[0], EXPERTS)
    _, before = predictor.forecast_sequence(activation, 2)
    _, after = back.forecast_sequence(activation, 2)
    np.testing.assert_allclose(after, before, atol=5e-3)  # stored as float16
    assert (back.kind, back.ranges) == (predictor.kind, predictor.ranges)


def test_confidence_is_calibrated():
    traces = cycling(30, noise=0.3, seed=3)
    predictor, _ = train_predictor(traces, cycling(8, noise=0.3, seed=4), _options(tokens=20_000))
    confidence, outcome = [], []
    for request in cycling(8, noise=0.3, seed=5).requests:
        activation = activations(request, EXPERTS)
        _, probability = predictor.forecast_sequence(activation, 0)
        confidence.append(probability[:-1, 0])
        outcome.append(activation[1:] > 0)
    p, y = np.concatenate(confidence).ravel(), np.concatenate(outcome).ravel()
    bins = np.minimum((p * 10).astype(int), 9)
    error = sum(abs(p[bins == b].mean() - y[bins == b].mean()) * (bins == b).mean() for b in set(bins))
    assert error < 0.03


def test_a_budget_of_tokens_gives_the_same_result_every_time(learned):
    again, record = train_predictor(cycling(), cycling(6, seed=9), _options())
    assert record["curve"] == [row | {"minutes": pytest.approx(row["minutes"], abs=9)} for row in record["curve"]]
    first = learned["mamba2"][0].networks[0].state_dict()
    assert all(torch.equal(tensor, first[name]) for name, tensor in again.networks[0].state_dict().items())


def test_a_killed_training_resumes_to_the_same_result(learned, tmp_path):
    script = f"""
        import sys, os, signal
        sys.path[:0] = [{str(Path(__file__).parent)!r}]
        from cycling_traces import cycling
        from seqmoe.predictor.training import TrainingOptions, train_predictor, loop
        from pathlib import Path
        loop.CHECKPOINT_SECONDS = 0.0
        def listener(progress):
            if progress.share > 0.55:
                os.kill(os.getpid(), signal.SIGKILL)
        options = TrainingOptions("mamba2", tokens={BUDGET}, **{SMALL!r})
        train_predictor(cycling(), cycling(6, seed=9), options, work=Path({str(tmp_path)!r}), progress=listener)
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert killed.returncode == -signal.SIGKILL and list(tmp_path.iterdir())
    seen = []
    predictor, record = train_predictor(
        cycling(), cycling(6, seed=9), _options(), work=tmp_path, progress=lambda p: seen.append(p.share)
    )
    assert seen[0] > 0.5, "it must not begin anew"
    straight, straight_record = learned["mamba2"]
    strip = [{k: v for k, v in row.items() if k != "minutes"} for row in record["curve"]]
    assert strip == [{k: v for k, v in row.items() if k != "minutes"} for row in straight_record["curve"]]
    for mine, other in zip(predictor.networks, straight.networks, strict=True):
        for name, tensor in mine.state_dict().items():
            torch.testing.assert_close(tensor, other.state_dict()[name], atol=1e-6, rtol=1e-5)
    assert not list(tmp_path.iterdir()), "a finished training leaves nothing"


def test_a_killed_epoch_goes_on_behind_the_batches_that_were_taken():
    source = BatchSource(cycling(70, steps=9), batch=3, seed=1)
    whole = [batch.inputs for batch in source.epoch(2)]
    for taken in (0, 1, 8, 11, 23, len(whole)):
        rest = list(source.epoch(2, skip=taken))
        assert len(rest) == len(whole) - taken
        assert all(torch.equal(mine.inputs, other) for mine, other in zip(rest, whole[taken:], strict=True))


def test_a_checkpoint_of_another_training_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(training_loop, "CHECKPOINT_SECONDS", 0.0)

    def stop(progress):
        if progress.share > 0.2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_predictor(cycling(), cycling(6), _options(), work=tmp_path, progress=stop)
    with pytest.raises(InputError, match="another seed"):
        train_predictor(cycling(), cycling(6), _options(seed=1), work=tmp_path)
    with pytest.raises(InputError, match="another content of the traces"):
        train_predictor(cycling(seed=1), cycling(6), _options(), work=tmp_path)
    [path] = tmp_path.iterdir()
    with safe_open(path, framework="pt") as stored:
        about = json.loads(stored.metadata()["seqmoe_training"])
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 (no mapping)
    first_weight = next(name for name in tensors if name.startswith("best."))
    damaged = [({}, tensors), ([], tensors), (about | {"position": None}, tensors), (about | {"identity": 1}, tensors)]
    damaged += [(about | {"position": about["position"] | {"later": 1}}, tensors)]
    damaged += [(about, {k: v for k, v in tensors.items() if k != name}) for name in ("random", first_weight)]
    damaged += [(about, tensors | {first_weight: torch.zeros(1)})]
    written = [save(kept, metadata={"seqmoe_training": json.dumps(told)}) for told, kept in damaged]
    for content in (path.read_bytes()[:100], b"", *written):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"training\.safetensors: not a training checkpoint.*remove it"):
            train_predictor(cycling(), cycling(6), _options(), work=tmp_path)


def test_two_processes_share_the_work(tmp_path):
    pytest.importorskip("accelerate")
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys
        sys.path[:0] = [{str(Path(__file__).parent)!r}]
        from pathlib import Path
        from cycling_traces import cycling
        from seqmoe.predictor.training import TrainingOptions, loop, train_predictor
        loop.CHECKPOINT_SECONDS = 0.0
        options = TrainingOptions("mamba2", tokens=6_000, **{SMALL!r})

        def stop(progress):
            if progress.share > 0.6:
                raise KeyboardInterrupt

        def train(work, progress=None):
            # 20 requests, 4 at a time: five batches, which two processes cannot share evenly.
            return train_predictor(cycling(20, steps=40), cycling(6, seed=9), options, work=work, progress=progress)

        work = Path({str(tmp_path)!r}) / "work"
        try:
            train(work, stop)
        except KeyboardInterrupt:
            pass
        predictor, record = train(work)
        straight, _ = train(None)
        weights = [float(each.networks[0].enter.weight.sum()) for each in (predictor, straight)]
        print("RESULT", record["processes"], record["tokens"] >= 6_000, weights[0] == weights[1], repr(weights[0]))
    """)
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    environment |= {"MASTER_PORT": str(29_500 + os.getpid() % 1000), "ACCELERATE_USE_CPU": "true"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    results = [process.communicate(timeout=240) for process in ranks]
    assert all(process.returncode == 0 for process in ranks), results[0][1][-2000:] + results[1][1][-2000:]
    lines = [[line for line in out.splitlines() if line.startswith("RESULT")] for out, _ in results]
    assert lines[0] == lines[1] and lines[0][0].startswith("RESULT 2 True True")


@pytest.mark.parametrize("changes", [{"psi": False}, {"loss": "kl"}, {"loss": "ranking"}, {"scheduled_sampling": False},
                                     {"use_head": False}, {"direct": True}, {"ranges": 1}, {"ranges": 4}])  # fmt: skip
def test_every_ablation_learns_the_cycle(changes, tmp_path):
    predictor, record = train_predictor(cycling(), cycling(6, seed=9), _options(**changes))
    assert record["curve"][-1]["recall"] > 0.9
    assert len(predictor.ranges) == changes.get("ranges", 2)
    predictor.save(tmp_path / "p.safetensors", record)
    assert load_predictor(tmp_path / "p.safetensors").ranges == predictor.ranges
    row = activations(cycling(1).requests[0], EXPERTS)[0]
    first, last = predictor.ranges[0]
    predictor.observe(row, first, last)
    forecast = predictor.forecast(first, last, 7)
    assert forecast.probability.shape == (8, last - first, EXPERTS)
    assert (forecast.use is None) == (changes.get("use_head") is False)


def test_shuffling_destroys_what_can_be_learned():
    shuffled, _ = train_predictor(cycling(), cycling(6, seed=9), _options("transformer", ordered=False))[::-1]
    ordered = train_predictor(cycling(), cycling(6, seed=9), _options("transformer"))[1]
    assert ordered["curve"][-1]["recall"] > 0.99 > 0.8 > shuffled["curve"][-1]["recall"]


def test_missing_layers_and_short_requests_are_left_out():
    traces = cycling(8)
    first = traces.requests[0]
    experts = first.experts.copy()
    experts[:, 2] = MISSING
    short = dataclasses.replace(first, experts=first.experts[:1], phase=first.phase[:1], weights=first.weights[:1])
    holed = dataclasses.replace(first, experts=experts)
    mixed = dataclasses.replace(traces, requests=(*traces.requests[1:], holed, short))
    _, record = train_predictor(mixed, mixed, _options(tokens=2_000))
    assert np.isfinite([row["loss"] for row in record["curve"]]).all()
    with pytest.raises(InputError, match="no request of at least two steps"):
        train_predictor(dataclasses.replace(traces, requests=(short,)), traces, _options())


@pytest.mark.parametrize("kind", ["mamba2", "transformer"])
def test_nothing_to_rank_and_batches_without_routing_leave_the_loss_a_number(kind):
    rng = np.random.default_rng(0)
    requests = [random_request(rng, 9, layers=2, experts=3, k=3) for _ in range(6)]
    requests += [random_request(rng, 9, layers=2, experts=3, k=3, missing=1.0) for _ in range(6)]
    traces = trace_set(*requests, experts=3)
    predictor, record = train_predictor(traces, traces, _options(kind, tokens=200, batch=1))
    assert all(np.isfinite([row["loss"], row["validation_loss"]]).all() for row in record["curve"])
    assert all(tensor.isfinite().all() for network in predictor.networks for tensor in network.parameters())
    with pytest.raises(InputError, match="no request of at least two steps"):
        train_predictor(trace_set(*requests[6:], experts=3), traces, _options(kind))


def test_a_training_that_diverges_says_so(monkeypatch):
    monkeypatch.setattr(training_loop, "divergence", lambda logits, target: logits.sum() * torch.nan)
    with pytest.raises(InputError, match="no number after 1 steps"):
        train_predictor(cycling(4), cycling(2), _options())
