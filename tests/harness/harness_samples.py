"""Cells, records and declarations for tests: every value can be chosen, none has to be."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from seqmoe.harness.record import SCHEMA, Observations, PromptObservation, Record, Status
from seqmoe.spec.choice import FOLDER
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import Cell

MILLISECOND = 1_000_000


def cell(**changes: Any) -> Cell:
    defaults: dict[str, Any] = {
        "suite": "demo", "panel": "p", "system": "lru", "model": "tiny", "lane": "measured", "residency": 0.25,
        "batch": 1, "dataset": "few", "prompts": 2, "decode_tokens": 4,
    }  # fmt: skip
    return Cell(**(defaults | changes))


def timed(gaps_ms: list[float], ttft_ms: float = 10.0, start_ms: float = 0.0, tokens: Any = None) -> PromptObservation:
    """A prompt whose first token comes after ``ttft_ms`` and whose others follow after ``gaps_ms``."""
    times = [start_ms + ttft_ms]
    for gap in gaps_ms:
        times.append(times[-1] + gap)
    ids = tuple(tokens) if tokens is not None else tuple(range(len(times)))
    return PromptObservation(int(start_ms * MILLISECOND), tuple(int(t * MILLISECOND) for t in times), ids)


def record(
    prompts: int | list[PromptObservation] = 2,
    decode_tokens: int = 4,
    status: Status | None = None,
    stats: dict[str, Any] | None = None,
    repeat: int = 0,
    environment: dict[str, Any] | None = None,
    **changes: Any,
) -> Record:
    observed = prompts if isinstance(prompts, list) else [timed([5.0] * (decode_tokens - 1)) for _ in range(prompts)]
    length = len(observed[0].tokens) if observed else decode_tokens
    point = cell(**({"prompts": len(observed) or 1, "decode_tokens": length} | changes))
    return Record(
        SCHEMA, point, point.key, repeat, status or Status("ok"), Observations(tuple(observed), stats or {}),
        environment or {}, "2026-01-01T00:00:00Z", 1.5,
    )  # fmt: skip


def write_predictor(checkpoint: Path, content: bytes, kind: str = "first_order") -> Path:
    """A predictor beside a checkpoint, where a model's own is looked for."""
    path = checkpoint / FOLDER / f"{kind}.safetensors"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether the condition comes true in time."""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


def processes_with(mark: str, seconds: float = 3.0) -> list[int]:
    """Live processes other than this one that have ``mark`` in an argument; killed ones get a moment to vanish."""
    limit = time.monotonic() + seconds
    while True:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in arguments and int(folder.name) != os.getpid():
                found.append(int(folder.name))
        if not found or time.monotonic() > limit:
            return found
        time.sleep(0.05)


MODEL = """
schema = 1
name = "tiny"
title = "Tiny"
licence = "x"
family = "qwen3_moe"
format = "bf16"
path = "{path}"
layers = 2
experts = 8
top_k = 2
expert_bytes = 10
non_expert_bytes = 10
sources = {{ layers = "x", experts = "x", top_k = "x", expert_bytes = "x", non_expert_bytes = "x" }}
"""

DATASET = """
schema = 1
name = "few"
title = "Few"
licence = "x"
source = "x"
file = "few.jsonl"
field = "text"
"""

HARDWARE = """
schema = 1
name = "card"
title = "Card"
memory = 8
link_peak = 30.0
link_sustained = 20.0
emulates = "big"
sources = {memory = "x", link_peak = "x", link_sustained = "x"}
full_load.big = {decode_tok_s = 100.0, layers = 10, expert_bytes = 10_000_000, source = "x"}
"""

SUITE = """
schema = 1
name = "demo"
title = "Demo"
figure = "6"
[profile.quick]
repeats = 2
[[profile.quick.block]]
panel = "p"
lane = "measured"
systems = ["lru", "seqmoe", "full"]
models = ["tiny"]
residency = [0.25, 0.5]
dataset = "few"
prompts = 2
decode_tokens = [4]
"""

BASELINE = """
name = "Rival"
title = "Rival"
homepage = "x"
licence = "x"
python = ">=3.11"
model_format = "hf"
residency = "x"
hit_rate = "x"
needs = "x"
install = "nox -s baseline-rival"
requirements = {quick = "requirements.txt", full = "requirements.txt"}
[[capability]]
families = ["qwen3_moe"]
formats = ["bf16"]
devices = ["cpu"]
supported = true
residency = "full"
reason = "only full load without a GPU"
"""


GPU_HOST = {"gpus": [{"name": "x"}]}


def write_baseline(home: Home, devices: str, two_builds: bool = False) -> None:
    """Declare the rival anew: supported on ``devices`` (TOML) whatever the residency, with one or two builds."""
    head = BASELINE[: BASELINE.index("[[capability]]")]
    row = f'[[capability]]\nfamilies = ["*"]\nformats = ["*"]\ndevices = {devices}\nsupported = true\n'
    if two_builds:
        head = head.replace('full = "requirements.txt"', 'full = "requirements-full.txt"')
        (home.baselines / "rival" / "requirements-full.txt").write_text("")
    (home.baselines / "rival" / "baseline.toml").write_text(head + row)


def write_home(folder: Path, suite: str = SUITE) -> Home:
    """A complete set of declarations, with a checkpoint folder that holds a tokenizer of bytes and no weights."""
    checkpoint = folder / "checkpoint"
    files = {
        "pyproject.toml": "",
        "suites/demo.toml": suite,
        "suites/models/tiny.toml": MODEL.format(path=checkpoint),
        "suites/datasets/few.toml": DATASET,
        "suites/datasets/few.jsonl": "".join(json.dumps({"id": c, "text": c * 3}) + "\n" for c in "abcdef"),
        "suites/hardware/card.toml": HARDWARE,
        "baselines/rival/baseline.toml": BASELINE,
        "baselines/rival/worker.py": "",
        "baselines/rival/requirements.txt": "",
        "checkpoint/config.json": "{}",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    tokenizer = Tokenizer(models.WordLevel({chr(code): code for code in range(33, 127)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.save(str(checkpoint / "tokenizer.json"))
    return Home(folder, folder, "clone")


class FakeLauncher:
    """Serves every cell by fake_worker.py, whose behaviour is given by system; each system has a group of its own."""

    def __init__(self, home: Home, behaviour: dict[str, Any] | None = None, shared: bool = True) -> None:
        self.plan = {"log": str(home.work / "served.jsonl"), **(behaviour or {})}
        self.mark = str(home.work)
        self.shared = shared
        self.obstacles: dict[str, Status] = {}

    def group(self, point: Cell) -> str:
        return "all" if self.shared else point.system

    def obstacle(self, point: Cell) -> Status | None:
        return self.obstacles.get(point.system)

    def command(self, point: Cell) -> list[str]:
        script = Path(__file__).with_name("fake_worker.py")
        return [sys.executable, str(script), json.dumps(self.plan), self.mark]
