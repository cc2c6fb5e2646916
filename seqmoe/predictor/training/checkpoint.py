"""A training's state on the disk, so that one that was killed goes on as if nothing had been."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from seqmoe.predictor.training.assembly import described
from seqmoe.predictor.training.options import TrainingOptions
from seqmoe.spec.errors import InputError
from seqmoe.spec.files import replacing
from seqmoe.spec.trace import TraceSet
from seqmoe.traces.source import digest

_FILE = "training.safetensors"
_KEY = "seqmoe_training"


@dataclass(slots=True)
class Position:
    """Where a training is. ``batches`` were taken from ``epoch``; ``seconds`` were spent; ``curve`` has a row per
    validation; ``sampling_from`` is the share of the budget at which teacher forcing ended; ``stale`` validations
    brought nothing new."""

    epoch: int = 0
    batches: int = 0
    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    sampling_from: float | None = None
    best: float = -1.0
    stale: int = 0
    validated_at: float = 0.0
    validated_epoch: int = 0
    curve: list[dict[str, Any]] = field(default_factory=list)


class Checkpoint:
    """One file in ``folder``, for one set of options and one set of traces; without a folder nothing is kept.

    Of several processes one ``writes``; all of them read, so that they go on from the same place.
    """

    def __init__(self, folder: Path | None, options: TrainingOptions, traces: TraceSet, writes: bool = True) -> None:
        self._path = None if folder is None else folder / _FILE
        self._writes = writes
        # A larger budget continues a training; anything else would be another one.
        self._identity: dict[str, Any] = {**asdict(options), "minutes": None, "tokens": None}
        self._identity["traces"] = described(traces)
        if folder is not None:
            # The same number of sequences of the same model may be others, and those may be what is tested on.
            self._identity["content of the traces"] = digest(traces)
            folder.mkdir(parents=True, exist_ok=True)

    def write(self, model: nn.Module, optimizer: torch.optim.Optimizer, best: dict[str, Tensor], at: Position) -> None:
        """Replace the file as a whole."""
        if self._path is None or not self._writes:
            return
        tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in best.items()}
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in state.items()}
        tensors["random"] = torch.get_rng_state()
        if torch.cuda.is_available():
            tensors["random_cuda"] = torch.cuda.get_rng_state()
        stored = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
        about = json.dumps({"identity": self._identity, "position": asdict(at)})
        with replacing(self._path) as partial:
            partial.write_bytes(save(stored, metadata={_KEY: about}))

    def read(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Position, dict[str, Tensor]] | None:
        """Bring back what was written: the position and the best weights; None if there is nothing.

        Raises `InputError` for a file of another training, or one that is cut.
        """
        if self._path is None or not self._path.is_file():
            return None
        try:
            with safe_open(self._path, framework="pt") as stored:
                about = json.loads((stored.metadata() or {})[_KEY])
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 (no mapping)
            # What an older version did not write down is taken to be the same.
            differing = [key for key, value in self._identity.items() if about["identity"].get(key, value) != value]
            if not differing:
                return self._restored(about["position"], tensors, model, optimizer)
        except (SafetensorError, KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{self._path}: not a training checkpoint ({reason}); remove it to begin anew") from None
        raise InputError(
            f"{self._path}: belongs to a training with another {', '.join(differing)}; "
            "remove it to begin anew, or choose another folder"
        )

    @staticmethod
    def _restored(
        position: dict[str, Any], tensors: dict[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[Position, dict[str, Tensor]]:
        best = _below("best.", tensors)
        if best:
            model.load_state_dict(best)  # whole and of the same shapes, or an error
        model.load_state_dict(_below("model.", tensors))
        states: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _below("optimizer.", tensors).items():
            index, field_name = name.split(".", 1)
            states.setdefault(int(index), {})[field_name] = tensor
        optimizer.load_state_dict(optimizer.state_dict() | {"state": states})
        torch.set_rng_state(tensors["random"])
        if "random_cuda" in tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(tensors["random_cuda"])
        return Position(**position), best

    def remove(self) -> None:
        """The training is over."""
        if self._path is not None and self._writes:
            self._path.unlink(missing_ok=True)


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
