"""The training loop: batches, losses, schedule, validation, checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import seqmoe
from seqmoe.predictor.confidence import Confidence
from seqmoe.predictor.network import NetworkShape, RangedNetworks, SequenceNetwork
from seqmoe.predictor.trained import TrainedPredictor
from seqmoe.predictor.training.batches import Batch, BatchSource
from seqmoe.predictor.training.checkpoint import Checkpoint, Position
from seqmoe.predictor.training.devices import Devices
from seqmoe.predictor.training.losses import discounted_use, divergence, ranking_loss, use_loss
from seqmoe.predictor.training.options import Progress, TrainingOptions
from seqmoe.predictor.training.sampling import with_own_predictions
from seqmoe.predictor.training.validation import calibrate, validate
from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import TraceSet

_WARM_UP = 40
_LEAST_RATE = 0.02
_INPUT_DROPOUT = 0.1
_WEIGHT_DECAY = 0.1
_GRADIENT_NORM = 1.0
# Teacher forcing ends when it has converged, and at this share of the budget anyhow; then replaced inputs ramp up.
_TEACHER_SHARE = 0.6
_MOST_REPLACED = 0.5
_PATIENCE = 3
_IMPROVEMENT = 5e-4
_VALIDATIONS = 24
_TRAINING_PER_VALIDATION = 10
_CHECKPOINT_SECONDS = 30.0

Listener = Callable[[Progress], None]


def train_predictor(
    train: TraceSet,
    validation: TraceSet,
    options: TrainingOptions,
    *,
    work: Path | None = None,
    progress: Listener | None = None,
) -> tuple[TrainedPredictor, dict[str, Any]]:
    """Train networks on ``train`` and return the predictor that was best on ``validation``, with its record.

    ``work`` keeps a checkpoint: a training that was killed goes on from it, with a budget of tokens to the same result.
    The record is plain JSON: options, budget used, precision, and ``curve``, one row per validation. Raises
    `InputError` for traces without a sequence to learn from, or a ``work`` of another training.
    """
    for name, traces in (("train", train), ("validation", validation)):
        if not any(len(request.experts) > 1 for request in traces.requests):
            raise InputError(f"{name}: {traces.source or traces.model}: no request of at least two steps to learn from")
    return _Training(train, validation, options, work, progress or (lambda _: None)).run()


class _Training:
    def __init__(
        self, train: TraceSet, validation: TraceSet, options: TrainingOptions, work: Path | None, listener: Listener
    ) -> None:
        self.options, self.listener = options, listener
        self.traces = train
        self.devices = Devices.here()
        torch.manual_seed(options.seed)
        self.networks = _networks(train, options).to(self.devices.device)
        self.model, self.optimizer = self.devices.prepare(self.networks, _optimizer(self.networks, options))
        self.source = BatchSource(train, options.batch, options.seed, options.psi, options.ordered)
        self.held_out = BatchSource(validation, 1, options.seed, options.psi, options.ordered)
        self.checkpoint = Checkpoint(work if self.devices.rank == 0 else None, options, _described(train))
        self.at = Position()
        self.best: dict[str, Tensor] = {}
        self.loss = math.nan
        self.validated = (0.0, 0.0)  # when the last validation ended, and how long it took

    def run(self) -> tuple[TrainedPredictor, dict[str, Any]]:
        resumed = self.checkpoint.read(self.networks, self.optimizer)
        if resumed is not None:
            self.at, self.best = resumed
        stopped = self._train()
        self.networks.load_state_dict(self.best)
        self.networks.float().cpu()
        predictor = self._predictor()
        predictor.confidence = calibrate(predictor, self.held_out)
        record = self._record(stopped, predictor)
        self.checkpoint.remove()
        return predictor, record

    def _train(self) -> str:
        """Until the budget is spent, or nothing more is gained."""
        started, before, saved = time.monotonic(), self.at.seconds, time.monotonic()
        while True:
            for index, batch in enumerate(self.source.epoch(self.at.epoch, self.devices.rank, self.devices.ranks)):
                if index < self.at.batches:
                    continue  # taken before the training was killed
                self.loss = self._step(batch)
                self.at.batches += 1
                self.at.tokens += batch.tokens * self.devices.ranks
                self.at.seconds = self.devices.agree(before + time.monotonic() - started)
                spent = self._spent()
                if spent >= 1 or self._validation_is_due(spent):
                    if self._validate(spent):
                        return "early"
                    self._tell(spent)
                if spent >= 1:
                    return "budget"
                if time.monotonic() - saved > _CHECKPOINT_SECONDS:
                    self.checkpoint.write(self.networks, self.optimizer, self.best, self.at)
                    saved = time.monotonic()
                self._tell(spent)
            self.at.epoch += 1
            self.at.batches = 0

    def _step(self, batch: Batch) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.learning_rate * self._rate()
        inputs, targets = (tensor.to(self.devices.device) for tensor in (batch.inputs, batch.targets))
        self.model.train()
        with self.devices.autocast():
            replaced = self._replaced()
            if replaced:
                top_k = self.traces.top_k
                inputs = with_own_predictions(self.networks, inputs, replaced, top_k, self.options.psi)
            prediction = self.model(functional.dropout(inputs[:, :-1], _INPUT_DROPOUT))
        loss = self._loss(prediction.logits, prediction.use, targets)
        if self.devices.accelerator is None:
            loss.backward()
        else:
            self.devices.accelerator.backward(loss)
        nn.utils.clip_grad_norm_(self.model.parameters(), _GRADIENT_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.at.steps += 1
        return float(loss.detach())

    def _loss(self, logits: Tensor, use: Tensor | None, targets: Tensor) -> Tensor:
        top_k = self.traces.top_k
        following = targets[:, 1:]
        present = (following > 0).sum(-1) == top_k
        rows, wanted = logits[present], following[present]
        loss = rows.new_zeros(())
        if self.options.loss != "ranking":
            loss = loss + divergence(rows, wanted)
        if self.options.loss != "kl":
            loss = loss + ranking_loss(rows, wanted, top_k)
        if use is not None:
            loss = loss + use_loss(use[present], discounted_use(targets > 0)[:, :-1][present], top_k)
        return loss

    def _validation_is_due(self, spent: float) -> bool:
        since = spent - self.at.validated_at
        ended, took = self.validated
        if self.options.tokens is None and self.at.seconds - ended < _TRAINING_PER_VALIDATION * took:
            return False
        return since >= 2 / _VALIDATIONS or (self.at.epoch > self.at.validated_epoch and since >= 1 / _VALIDATIONS)

    def _validate(self, spent: float) -> bool:
        """Measure, keep the best weights, move from one phase to the next; True when nothing more is gained."""
        self.at.validated_at, self.at.validated_epoch = spent, self.at.epoch
        begun = time.monotonic()
        found = validate(self.networks, self._predictor(), self.held_out)
        took = time.monotonic() - begun
        self.validated = (self.at.seconds + took, took)
        sampling = self.at.sampling_from is not None
        self.at.curve.append(
            {
                "minutes": round(self.at.seconds / 60, 3),
                "epoch": self.at.epoch + 1,
                "tokens": self.at.tokens,
                "loss": round(self.loss, 5),
                "validation_loss": round(found.loss, 5),
                "recall": round(found.recall, 5),
                "rollout": round(found.rollout, 5),
                "phase": "sampling" if sampling else "teacher",
            }
        )
        # Both are wanted: what the prefetcher reads, and what the cache reads.
        score = self.devices.agree((found.recall + found.rollout) / 2)
        self.at.stale = 0 if score > self.at.best + _IMPROVEMENT else self.at.stale + 1
        if score > self.at.best:
            self.at.best = score
            self.best = {name: tensor.detach().cpu().clone() for name, tensor in self.networks.state_dict().items()}
        converged = self.at.stale >= _PATIENCE
        if self.options.scheduled_sampling and not sampling:
            if converged or spent >= _TEACHER_SHARE:
                self.at.sampling_from, self.at.stale = spent, 0
            return False
        return converged and self._rate() < 0.25

    def _spent(self) -> float:
        options = self.options
        shares = [0.0]
        if options.minutes is not None:
            shares.append(self.at.seconds / (60 * options.minutes))
        if options.tokens is not None:
            shares.append(self.at.tokens / options.tokens)
        return max(shares)

    def _rate(self) -> float:
        """Warm-up, then a cosine over the budget."""
        cosine = 0.5 * (1 + math.cos(math.pi * min(self._spent(), 1.0)))
        return min(1.0, (self.at.steps + 1) / _WARM_UP) * max(_LEAST_RATE, cosine)

    def _replaced(self) -> float:
        """Share of the inputs that are the networks' own: a ramp over the first half of what is left of the budget."""
        begun = self.at.sampling_from
        if begun is None:
            return 0.0
        return _MOST_REPLACED * min(1.0, max(0.0, self._spent() - begun) / max(0.5 * (1 - begun), 1e-6))

    def _predictor(self) -> TrainedPredictor:
        uncalibrated = [Confidence.uncalibrated(self.traces.top_k) for _ in self.networks.ranges]
        networks: list[SequenceNetwork] = list(self.networks.networks)  # type: ignore[arg-type]
        return TrainedPredictor(
            self.options.kind,
            self.networks.ranges,
            networks,
            uncalibrated,
            self.options.psi,
            {"router": self.traces.router},
        )

    def _tell(self, spent: float) -> None:
        recall = self.at.curve[-1]["recall"] if self.at.curve else None
        phase = "teacher" if self.at.sampling_from is None else "sampling"
        minutes = self.at.seconds / 60
        self.listener(Progress(min(spent, 1.0), minutes, self.at.epoch + 1, self.at.tokens, self.loss, recall, phase))

    def _record(self, stopped: str, predictor: TrainedPredictor) -> dict[str, Any]:
        return {
            "options": asdict(self.options),
            "traces": _described(self.traces),
            "parameters": predictor.parameters,
            "tokens": self.at.tokens,
            "minutes": round(self.at.seconds / 60, 3),
            "epochs": self.at.epoch + 1,
            "seed": self.options.seed,
            "device": str(self.devices.device.type),
            "processes": self.devices.ranks,
            "threads": torch.get_num_threads(),
            "precision": self.devices.precision,
            "stopped": stopped,
            "versions": {"seqmoe": seqmoe.__version__, "torch": torch.__version__},
            "curve": self.at.curve,
        }


def _described(traces: TraceSet) -> dict[str, Any]:
    return {"model": traces.model, "source": traces.source, "requests": len(traces.requests)}


def _networks(traces: TraceSet, options: TrainingOptions) -> RangedNetworks:
    ranges = options.layer_ranges(traces.layers)
    hidden, blocks = options.size(len(ranges))
    return RangedNetworks(
        ranges,
        (
            SequenceNetwork(
                NetworkShape(
                    options.trunk, last - first, traces.experts, traces.top_k, hidden, blocks, options.use_head
                )
            )
            for first, last in ranges
        ),
    )


def _optimizer(networks: nn.Module, options: TrainingOptions) -> torch.optim.Optimizer:
    """AdamW; matrices decay, vectors and the short convolutions do not."""
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for name, tensor in networks.named_parameters():
        (matrices if tensor.dim() > 1 and "conv" not in name else others).append(tensor)
    groups = [{"params": matrices, "weight_decay": _WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, options.learning_rate, betas=(0.9, 0.95), fused=True)
