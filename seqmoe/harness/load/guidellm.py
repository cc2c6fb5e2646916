"""GuideLLM, a load generator of others, against the same server: what it counts must be what the server counts."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqmoe.harness.load.counts import Counts, settled_counts
from seqmoe.harness.load.plan import Plan
from seqmoe.harness.load.server import ServerProcess, child_environment, end_group
from seqmoe.harness.load.watch import Sample, Watch, tokens_between

# It imports PyTorch and Transformers in every process that it starts, which takes longer than a short test.
_PROCESSES = 2
_START_SECONDS = 300.0
_INTERVAL = 0.2
_TAIL = 800


class GuideLLMError(RuntimeError):
    """It did not run to its end, or its report is not as expected; the message says what it said."""


@dataclass(frozen=True, slots=True)
class Compared:
    """GuideLLM's numbers beside the server's; times in seconds.

    Both rates are of the time from its first request to its last answer.
    """

    requests: int
    errors: int
    tokens: int
    tok_s: float
    ttft: float
    server_requests: int
    server_tokens: int
    server_tok_s: float
    server_ttft: float


def is_installed(python: str) -> bool:
    """Whether an interpreter has GuideLLM."""
    command = [python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('guidellm') is None)"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def compare_with_guidellm(
    python: str, server: ServerProcess, model: str, plan: Plan, tokenizer: Path, requests: int
) -> Compared:
    """Let GuideLLM send ``requests`` in as many streams as there are clients, without a network.

    It is given the number of requests and not the time, since it would break off what runs at the end of its time, and
    the server counts tokens of answers that are broken off. ``tokenizer`` is a folder. `GuideLLMError` where it fails.
    """
    before = settled_counts(server.url)
    with tempfile.TemporaryDirectory() as folder, Watch(server, _INTERVAL) as watch:
        report, prompts = Path(folder) / "report.json", Path(folder) / "prompts.jsonl"
        prompts.write_text("".join(f"{line}\n" for line in _rows(plan, requests)), encoding="utf-8")
        _run(
            [python, *_arguments(server.url, model, plan, tokenizer, requests, prompts, report)],
            Path(folder),
            plan.seconds,
        )
        counted = settled_counts(server.url).since(before)
        try:
            return _beside(json.loads(report.read_text(encoding="utf-8"))["benchmarks"][0], counted, watch.samples())
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise GuideLLMError(f"guidellm's report is not as expected: {type(error).__name__}: {error}") from None


def _beside(told: dict[str, Any], counted: Counts, samples: Sequence[Sample]) -> Compared:
    began, ended, metrics = told["start_time"], told["end_time"], told["metrics"]
    totals = metrics["request_totals"]
    return Compared(
        totals["successful"],
        totals["errored"] + totals["incomplete"],
        # A sum that it makes of a mean: 11127.999999999998 for 11128.
        round(metrics["output_token_count"]["successful"]["total_sum"]),
        metrics["output_tokens_per_second"]["successful"]["mean"],
        metrics["time_to_first_token_ms"]["successful"]["mean"] / 1e3,
        counted.answered,
        int(counted.tokens),
        tokens_between(samples, began, ended) / (ended - began),
        counted.ttft.mean,
    )


def _rows(plan: Plan, requests: int) -> list[str]:
    """As many questions as requests: it asks each line once."""
    asked = [plan.questions[index % len(plan.questions)] for index in range(requests)]
    return [json.dumps({"prompt": each.prompt, "output_tokens_count": each.tokens}) for each in asked]


def _arguments(
    url: str, model: str, plan: Plan, tokenizer: Path, requests: int, prompts: Path, report: Path
) -> list[str]:
    options: dict[str, dict[str, Any]] = {
        "backend": {"kind": "openai_http", "target": url, "model": model, "request_format": "/v1/completions"},
        "profile": {"kind": "concurrent", "streams": plan.clients},
        "constraint": {"kind": "max_requests", "count": requests},
        "data": {"kind": "json_file", "path": str(prompts)},
        "tokenizer": {"kind": "huggingface_auto", "model": str(tokenizer)},
        "output": {"kind": "json", "path": str(report)},
    }
    given = [part for name, value in options.items() for part in (f"--{name}", json.dumps(value))]
    return ["-m", "guidellm", "run", *given, "--disable-console"]


def _run(command: Sequence[str], folder: Path, seconds: float) -> None:
    log, limit = folder / "guidellm.log", _START_SECONDS + 5 * seconds
    environment = child_environment() | {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "cache"),
        "GUIDELLM__MAX_WORKER_PROCESSES": str(_PROCESSES),
        "PYTHONPATH": "",
    }
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=environment, start_new_session=True
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            raise GuideLLMError(f"guidellm did not end within {limit:g} s") from None
        finally:
            end_group(process)
    if code != 0:
        raise GuideLLMError(f"guidellm ended with {code}: {log.read_text(errors='replace')[-_TAIL:].strip()}")
