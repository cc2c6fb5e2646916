"""The answer to what should run on a machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from seqmoe.simulate.advice.memory import DeviceMemory, device_memory, fits_host
from seqmoe.simulate.advice.options import Option, Options, Question
from seqmoe.simulate.advice.trust import held_out
from seqmoe.simulate.calibrate.figure6 import HARDWARE
from seqmoe.simulate.timeline.cell import Simulator
from seqmoe.simulate.timeline.costs import Costs
from seqmoe.simulate.timeline.systems import simulated_system
from seqmoe.spec.calibration import load_calibration
from seqmoe.spec.paths import Home
from seqmoe.spec.printed import figure6_bars

# Above it figure 6 has no bar, so no error is known.
_PRINTED_UP_TO = 0.45


@dataclass(frozen=True, slots=True)
class Answer:
    """Options, the fastest first; ``memory`` and ``by_residency`` (residency, tok/s) are of the first, if one runs.

    ``printed`` are the titles of the models that figure 6 has bars of.
    """

    question: Question
    options: tuple[Option, ...]
    memory: DeviceMemory | None
    by_residency: tuple[tuple[float, float], ...]
    printed: frozenset[str]

    @property
    def best(self) -> Option | None:
        """The fastest that can run."""
        return self.options[0] if self.options[0].found else None

    @property
    def fits_host(self) -> bool | None:
        """Whether the host holds the best option's experts, None where its memory was not told."""
        return None if self.best is None else fits_host(self.best.host_bytes, self.question.ram)

    def caveats(self) -> list[str]:
        """In what the question goes beyond anything that the simulator was held to."""
        found, asked, best = [], self.question, self.best
        if asked.model.title not in self.printed:
            found.append(f"the paper has no bar of {asked.model.title}")
        if asked.hardware.name not in HARDWARE.values():
            found.append(f"the paper has no bar of {asked.hardware.title}")
        if best is not None and best.residency > _PRINTED_UP_TO and best.system != "full":
            found.append(f"the paper's bars end at {_PRINTED_UP_TO:.0%}; what is above is extrapolated")
        if asked.batch > 4:
            found.append("the paper's batches end at 4")
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        asked, best = self.question, self.best
        return {
            "lane": "simulated",
            "routing": "synthetic routing",
            "model": asked.model.name,
            "gpu": asked.hardware.name,
            "batch": asked.batch,
            "decode_tokens": asked.decode_tokens,
            "ram_gb": asked.ram,
            "fits_host": self.fits_host,
            "best": None if best is None else best.system,
            "memory": None if self.memory is None else asdict(self.memory),
            "by_residency": [list(pair) for pair in self.by_residency],
            "options": [_plain(option) for option in self.options],
            "caveats": self.caveats(),
        }


def answer(home: Home, question: Question, tell: Callable[[str], None] = lambda _: None) -> Answer:
    """Simulate every option. Held-out errors are computed anew, as `seqmoe simulate errors` does."""
    calibration = load_calibration(home)
    costs = Costs(question.model, question.hardware, calibration)
    _ = costs.rates, costs.decoding  # what is not declared for the simulator is said before it runs
    tell("the simulator's own errors")
    judged = held_out(home, calibration, question.batch > 1)
    options = Options(question, Simulator(home, calibration), Simulator(home, calibration, seed=1), tell)
    found = options.all(judged)
    best = found[0] if found[0].found else None
    printed = frozenset(bar.model for bar in figure6_bars(home))
    memory, by_residency = None, []
    if best is not None:
        row = simulated_system(best.system)
        memory = device_memory(options.costs, row, question.batch, question.decode_tokens)
        by_residency = options.by_residency(best)
    return Answer(question, tuple(found), memory, tuple(by_residency), printed)


def _plain(option: Option) -> dict[str, Any]:
    values: dict[str, Any] = {"system": option.system, "residency": option.residency, "host_bytes": option.host_bytes}
    if option.found is None or option.decode is None or option.ttft is None:
        return values | {"obstacle": option.obstacle}
    time = option.found.time
    return values | {
        "decode_tok_s": option.found.decode_tok_s,
        "decode_range": list(option.decode_range),
        "ttft_s": option.found.ttft_s,
        "ttft_range": list(option.ttft_range),
        "hit_rate": option.found.counts.hit_rate,
        "limit": option.limit,
        "link_busy": option.link_busy,
        "breakdown": {name: seconds / time.total for name, seconds in asdict(time).items()},
        "settings": asdict(option.tuned.settings) if option.system == "seqmoe" else None,
        "settings_gain": option.tuned.gain,
        "trust": {"decode": asdict(option.decode), "ttft": asdict(option.ttft)},
    }
