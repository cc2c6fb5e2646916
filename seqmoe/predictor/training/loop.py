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
from seqmoe.predictor.network import Prediction, SequenceNetwork
from seqmoe.predictor.trained import TrainedPredictor
from seqmoe.predictor.training.assembly import described, networks_for, optimizer_for
from seqmoe.predictor.training.batches import Batch, BatchSource
from seqmoe.predictor.training.checkpoint import Checkpoint, Position
from seqmoe.predictor.training.devices import Devices
from seqmoe.predictor.training.losses import discounted_use, divergence, ranking_loss, use_loss
from seqmoe.predictor.training.options import Progress, TrainingOptions
from seqmoe.predictor.training.sampling import with_own_predictions
from seqmoe.predictor.training.schedule import TEACHER_SHARE, Schedule
from seqmoe.predictor.training.validation import calibrate, validate
from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import MISSING, TraceSet

_INPUT_DROPOUT = 0.1
_GRADIENT_NORM = 1.0
_PATIENCE = 3
_IMPROVEMENT = 5e-4
CHECKPOINT_SECONDS = 30.0

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

    ``work`` keeps a checkpoint: a training that was killed goes on from it; with a budget of tokens, and one process,
    to the same result.
    The record is plain JSON: options, budget used, precision, and ``curve``, one row per validation. Raises
    `InputError` for traces without a sequence to learn from, or a ``work`` of another training.
    """
    for name, traces in (("train", train), ("validation", validation)):
        if not any((request.experts[1:] != MISSING).any() for request in traces.requests):
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
        self.networks = networks_for(train, options).to(self.devices.device)
        self.model, self.optimizer = self.devices.prepare(self.networks, optimizer_for(self.networks, options))
        self.source = BatchSource(train, options.batch, options.seed, options.psi, options.ordered)
        self.held_out = BatchSource(validation, 1, options.seed, options.psi, options.ordered)
        self.checkpoint = Checkpoint(work, options, train, writes=self.devices.rank == 0)
        self.at = Position()
        self.schedule = Schedule(options, self.at)
        self.best: dict[str, Tensor] = {}
        self.loss = math.nan

    def run(self) -> tuple[TrainedPredictor, dict[str, Any]]:
        resumed = self.checkpoint.read(self.networks, self.optimizer)
        if resumed is not None:
            self.at, self.best = resumed
            self.schedule = Schedule(self.options, self.at)
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
            rank, ranks, taken = self.devices.rank, self.devices.ranks, self.at.batches
            for batch in self.source.epoch(self.at.epoch, rank, ranks, skip=taken):
                self.loss = self._step(batch)
                if not math.isfinite(self.loss):
                    raise InputError(
                        f"training diverged: the loss is no number after {self.at.steps} steps; try another seed"
                    )
                self.at.batches += 1
                self.at.tokens += int(self.devices.agree(batch.tokens)) * ranks
                self.at.seconds = self.devices.agree(before + time.monotonic() - started)
                spent = self.schedule.spent()
                if spent >= 1 or self.schedule.validation_is_due():
                    if self._validate(spent):
                        return "early"
                    self._tell(spent)
                if spent >= 1:
                    return "budget"
                if time.monotonic() - saved > CHECKPOINT_SECONDS:
                    self.checkpoint.write(self.networks, self.optimizer, self.best, self.at)
                    saved = time.monotonic()
                self._tell(spent)
            self.at.epoch += 1
            self.at.batches = 0

    def _step(self, batch: Batch) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.learning_rate * self.schedule.rate()
        inputs, targets = (tensor.to(self.devices.device) for tensor in (batch.inputs, batch.targets))
        self.model.train()
        with self.devices.autocast():
            replaced = self.schedule.replaced()
            if replaced:
                top_k = self.traces.top_k
                inputs = with_own_predictions(self.networks, inputs, replaced, top_k, self.options.psi)
            prediction = self.model(functional.dropout(inputs[:, :-1], _INPUT_DROPOUT))
        loss = self._loss(prediction, targets)
        if self.devices.accelerator is None:
            loss.backward()
        else:
            self.devices.accelerator.backward(loss)
        nn.utils.clip_grad_norm_(self.model.parameters(), _GRADIENT_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.at.steps += 1
        return float(loss.detach())

    def _loss(self, prediction: Prediction, targets: Tensor) -> Tensor:
        top_k = self.traces.top_k
        loss = self._step_loss(prediction.logits, targets[:, 1:])
        present = (targets[:, 1:] > 0).any(-1)
        if prediction.use is not None and present.any():
            loss = loss + use_loss(prediction.use[present], discounted_use(targets > 0)[:, :-1][present], top_k)
        if prediction.ahead is not None:
            # One of the later steps per batch, by turns: seven times cheaper than all, and the same on average.
            later = self.at.steps % prediction.ahead.shape[2]
            if targets.shape[1] > later + 2:
                loss = loss + self._step_loss(prediction.ahead[:, : -(later + 1), later], targets[:, later + 2 :])
        return loss

    def _step_loss(self, logits: Tensor, following: Tensor) -> Tensor:
        """The paper's loss of one step's prediction; layers that are missing, and padding, do not count."""
        present = (following > 0).any(-1)
        rows, wanted = logits[present], following[present]
        loss = rows.sum() * 0  # all that is left of a batch whose layers are all missing
        if not len(rows):
            return loss
        if self.options.loss != "ranking":
            loss = loss + divergence(rows, wanted)
        if self.options.loss != "kl":
            loss = loss + ranking_loss(rows, wanted, self.traces.top_k)
        return loss

    def _validate(self, spent: float) -> bool:
        """Measure, keep the best weights, move from one phase to the next; True when nothing more is gained."""
        begun = time.monotonic()
        found = validate(self.networks, self._predictor(), self.held_out)
        self.schedule.validated(self.devices.agree(time.monotonic() - begun))
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
            if converged or spent >= TEACHER_SHARE:
                self.at.sampling_from, self.at.stale = spent, 0
            return False
        return converged and self.schedule.rate() < 0.25

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
            "traces": described(self.traces),
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
