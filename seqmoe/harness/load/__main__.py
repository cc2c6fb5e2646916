"""``python -m seqmoe.harness.load``: what stands behind ``nox -s load``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from seqmoe.harness.interruption import interruptible
from seqmoe.harness.load.checks import faults
from seqmoe.harness.load.guidellm import is_installed
from seqmoe.harness.load.plan import Plan, varied_questions
from seqmoe.harness.load.run import Outcome, run
from seqmoe.harness.load.table import table
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import find_home

MODEL, RESIDENCY = "reference", "0.45"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the test. 0 if all holds, 1 with the reasons if not, 2 for a wrong argument, 130 if interrupted."""
    options = _parser().parse_args(arguments)
    try:
        with interruptible():
            serve = ("--model", MODEL, "--residency", RESIDENCY)
            questions = varied_questions(find_home(), options.seed)
            plan = Plan(questions, serve, options.clients, options.seconds, options.batch, options.seed)
            return report(run(plan, _guidellm(options.guidellm), _say))
    except KeyboardInterrupt:
        return 130
    except InputError as error:
        print(f"nox -s load: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        print(f"nox -s load: {error}", file=sys.stderr)
        return 1


def report(outcome: Outcome) -> int:
    """Print the table and what does not hold; the exit code."""
    print(table(outcome))
    found = faults(outcome)
    for fault in found:
        print(f"FAILED  {fault}")
    print(f"{len(found)} checks failed" if found else "everything holds")
    return 1 if found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nox -s load --", description="A load test of seqmoe serve.", allow_abbrev=False
    )
    parser.add_argument("--clients", type=int, default=32, help="that ask at the same time; default 32")
    parser.add_argument("--seconds", type=float, default=300, help="for which they ask; default 300")
    parser.add_argument("--batch", type=int, default=8, help="requests that decode together; default 8, the server's")
    parser.add_argument("--seed", type=int, default=0, help="of the questions and their order; default 0")
    parser.add_argument(
        "--guidellm",
        default=sys.executable,
        metavar="PYTHON",
        help="an interpreter that has GuideLLM; default: this one",
    )
    return parser


def _guidellm(python: str) -> tuple[str, Path] | str:
    """The interpreter and the reference model's tokenizer, or why GuideLLM is left out."""
    if is_installed(python):
        return python, Path(__file__).parents[2] / "reference" / "checkpoint"
    if python == sys.executable:
        return "not installed for this Python (nox -s load tries to)"
    raise InputError(f"--guidellm {python}: has no GuideLLM; {python} -m pip install guidellm")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
