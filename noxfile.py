"""What people and CI run: `nox -s tests`, `nox -s reproduce-fig6`, `nox -s baseline-llama-cpp`, ..."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

import nox
from nox.command import CommandFailed

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.reuse_venv = "yes"
nox.options.default_venv_backend = "venv"

ROOT = Path(__file__).parent
CONSTRAINTS = ROOT / ".ci" / "constraints.txt"
BASELINES = sorted(folder.parent.name for folder in ROOT.glob("baselines/*/baseline.toml"))
# Two OpenMP threads on a busy machine with two cores make PyTorch 10 to 300 times slower than one.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def _prepare(session: nox.Session) -> None:
    """Install the project (editable, with its extension built) once per change of what the build depends on."""
    inputs = [ROOT / "pyproject.toml", CONSTRAINTS, *sorted((ROOT / "seqmoe/core/native").iterdir())]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in inputs if path.is_file())).hexdigest()
    stamp = Path(session.virtualenv.location) / "seqmoe-installed"
    if stamp.exists() and stamp.read_text() == digest:
        return
    session.install("--upgrade", "pip")
    session.install("-e", f"{ROOT}[dev]", "-c", str(CONSTRAINTS))
    stamp.write_text(digest)


@nox.session
def tests(session: nox.Session) -> None:
    """Unit tests: no GPU, no network, a few minutes."""
    _prepare(session)
    session.run("pytest", *(session.posargs or ["-q"]), env=ONE_THREAD)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff's rules and format."""
    session.install("ruff", "-c", str(CONSTRAINTS))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Mypy."""
    _prepare(session)
    session.run("mypy")


@nox.session
def bench(session: nox.Session) -> None:
    """Benchmarks of our own hot paths beside their peers, saved; with `-- --against REV` two revisions in turns."""
    _prepare(session)
    session.run("python", "-m", "seqmoe.harness.against", *session.posargs, env=ONE_THREAD)


@nox.session
def kernels(session: nox.Session) -> None:
    """The CUDA runtime's kernels without a GPU: interpreted against references, and compiled for every architecture."""
    _prepare(session)
    tests = ROOT / "tests/runtime/kernels"
    path = ":".join(map(str, (tests, ROOT / "tests/core")))
    interpreted = ("pytest", "-q", "-o", "python_files=interpret_*.py", str(tests / "interpreted"))
    session.run(*interpreted, *session.posargs, env={**ONE_THREAD, "TRITON_INTERPRET": "1", "PYTHONPATH": path})
    session.run("python", "-m", "seqmoe.runtime.kernels.check", env=ONE_THREAD)


@nox.session
def gpu(session: nox.Session) -> None:
    """All that only a GPU can check or measure; without one, what it needs. `-- --list` names the steps."""
    _prepare(session)
    session.run("python", "-m", "seqmoe.harness.gpu", *session.posargs)


@nox.session
def cluster(session: nox.Session) -> None:
    """Sweeps over several machines, on a Ray cluster of raylets on this one; installs Ray."""
    _prepare(session)
    session.install("-e", f"{ROOT}[dev,ray]", "-c", str(CONSTRAINTS))
    session.run("pytest", "-q", "tests/harness/executors", *session.posargs, env=ONE_THREAD)


@nox.session
def load(session: nox.Session) -> None:
    """A load test of `seqmoe serve` by OpenAI's client and GuideLLM; defaults: `-- --clients 32 --seconds 300`."""
    _prepare(session)
    try:
        session.install("guidellm", "-c", str(CONSTRAINTS))
    except CommandFailed:
        session.warn("GuideLLM cannot be installed; the test goes on without it and says so")
    session.run("python", "-m", "seqmoe.harness.load", *session.posargs, env=ONE_THREAD)


def _baseline_session(name: str) -> None:
    @nox.session(name=f"baseline-{name.replace('_', '-')}")
    def session_function(session: nox.Session) -> None:
        """Make this baseline's own environment and say what works on this machine."""
        _prepare(session)
        command = ("seqmoe", "baselines", "--install", name, "--json", *session.posargs)
        with tempfile.TemporaryFile("w+") as told:
            session.run(*command, stdout=told, stderr=sys.stderr, success_codes=[0, 1])
            told.seek(0)
            (found,) = json.loads(told.read().splitlines()[-1])["baselines"]
        if found["status"] == "unsupported" and not found["kernel"]:
            session.skip("; ".join(text for text in (found["reason"], found["trial"]) if text))
        if found["status"] != "ok" and not found["kernel"]:
            session.error(found["reason"])


for _name in BASELINES:
    _baseline_session(_name)


@nox.session(name="reproduce-fig6")
def reproduce_fig6(session: nox.Session) -> None:
    """Figure 6: end-to-end inference performance. Arguments after -- go to `seqmoe bench fig6`."""
    _prepare(session)
    asked = " ".join(session.posargs).replace("=", " ")
    profile = "full" if "--profile full" in asked else "quick"
    # A baseline that cannot be installed fills its cells with the reason and stops nothing.
    session.run("seqmoe", "baselines", "--install", "llama_cpp", "--profile", profile, success_codes=[0, 1])
    session.run("seqmoe", "bench", "fig6", *session.posargs)
    session.run("seqmoe", "report")


def _study_session(figure: str, title: str) -> None:
    @nox.session(name=f"reproduce-fig{figure}")
    def session_function(session: nox.Session) -> None:
        _prepare(session)
        session.run("seqmoe", "bench", f"fig{figure}", *session.posargs)
        session.run("seqmoe", "report")  # every figure that has records: one page holds them all

    session_function.__doc__ = title


_study_session(
    "2", "Figure 2: the probe on ordered and shuffled sequences. Arguments after -- go to `seqmoe bench fig2`."
)
_study_session("8", "Figure 8: recall of the predictors. Arguments after -- go to `seqmoe bench fig8`.")
_study_session("3", "Figure 3: eviction that knows the future. Arguments after -- go to `seqmoe bench fig3`.")
_study_session("7", "Figure 7: expert hit rates. Arguments after -- go to `seqmoe bench fig7`.")
# Suites of systems whose cells all run in our own runtime need no baseline, and are run and reported the same way.
_study_session("1", "Figure 1: every system on one GPU, simulated. Arguments after -- go to `seqmoe bench fig1`.")
_study_session("4", "Figure 4: ways to execute a decode step. Arguments after -- go to `seqmoe bench fig4`.")
_study_session("9", "Figure 9: where a decode step's time goes. Arguments after -- go to `seqmoe bench fig9`.")


@nox.session(name="reproduce-sweep")
def reproduce_sweep(session: nox.Session) -> None:
    """Beyond the paper: link, residency, recall, misses on the CPU. Arguments after -- go to `seqmoe bench`."""
    _prepare(session)
    session.run("seqmoe", "bench", "sweep", *session.posargs)
    session.run("seqmoe", "bench", "misses", *session.posargs)
    session.run("seqmoe", "report")


@nox.session(name="reproduce-fullload")
def reproduce_fullload(session: nox.Session) -> None:
    """Full load of the model beside other systems. Arguments after -- go to `seqmoe bench fullload`."""
    _prepare(session)
    for name in ("llama_cpp", "transformers", "vllm"):
        session.run("seqmoe", "baselines", "--install", name, success_codes=[0, 1])
    session.run("seqmoe", "bench", "fullload", *session.posargs)
    session.run("seqmoe", "report", "--suite", "fullload")


@nox.session(name="reproduce-emulated")
def reproduce_emulated(session: nox.Session) -> None:
    """Figure 6 with replayed routing: give `-- --traces FOLDER`; other arguments go to `seqmoe bench emulated` too."""
    _prepare(session)
    session.run("seqmoe", "bench", "emulated", *session.posargs, success_codes=[0, 1])
    session.run("seqmoe", "report")


@nox.session(name="reproduce-table1")
def reproduce_table1(session: nox.Session) -> None:
    """Table 1: the models by Transformers' classes, beside the print. Arguments after -- go to `seqmoe table1`."""
    _prepare(session)
    session.run("seqmoe", "table1", *session.posargs)


@nox.session(name="reproduce-table2")
def reproduce_table2(session: nox.Session) -> None:
    """Table 2: six prefetch tasks and what each order makes of them. Arguments after -- go to `seqmoe table2`."""
    _prepare(session)
    session.run("seqmoe", "table2", *session.posargs)


# All that the paper shows, in an order that trains before it replays; what is timed runs when nothing else does.
PARTS = {
    "table1": ("seqmoe table1",),
    "table2": ("seqmoe table2",),
    "fig8": ("seqmoe bench fig8",),
    "fig2": ("seqmoe bench fig2",),
    "fig7": ("seqmoe bench fig7",),
    "fig3": ("seqmoe bench fig3",),
    "fig1": ("seqmoe bench fig1",),
    "fig4": ("seqmoe bench fig4",),
    "fig9": ("seqmoe bench fig9",),
    "simulated": ("seqmoe bench fig6 --profile simulated", "seqmoe bench sweep"),
    "fig6": ("seqmoe baselines --install llama_cpp", "seqmoe bench fig6"),
}
# A baseline that cannot be installed fills its cells with the reason and stops nothing.
MAY_FAIL = ("seqmoe baselines --install llama_cpp",)


@nox.session(name="reproduce-all")
def reproduce_all(session: nox.Session) -> None:
    """Every figure and table, and one page with the verdicts. Arguments after -- choose parts: `-- fig7 fig3`.

    A part that fails is named at the end, and the session fails, but the others run. What is finished is kept: called
    again, it goes on.
    """
    unknown = [name for name in session.posargs if name not in PARTS]
    if unknown:
        session.error(f"no such part: {', '.join(unknown)}; valid: {', '.join(PARTS)}")
    _prepare(session)
    chosen = {name: PARTS[name] for name in PARTS if name in (session.posargs or PARTS)}
    chosen |= {"report": ("seqmoe report",), "verdict": ("seqmoe verdict",)}
    failed = [name for name, commands in chosen.items() if not all(_runs(session, command) for command in commands)]
    if failed:
        session.error(f"failed: {', '.join(failed)}; the same command tries them again and keeps the rest")


@nox.session
def api(session: nox.Session) -> None:
    """The reference of every public module, from its docstrings, in reports/api."""
    _prepare(session)
    _write_api(session, ROOT / "reports" / "api")


@nox.session
def publish(session: nox.Session) -> None:
    """What a Pages host takes, in reports/site: this machine's and the published records as a site, and the reference.

    Arguments after -- go to `seqmoe report`. A site that cannot be made leaves the last one alone.
    """
    _prepare(session)
    made, site = ROOT / "reports" / ".site", ROOT / "reports" / "site"
    shutil.rmtree(made, ignore_errors=True)
    session.run("seqmoe", "table1", "--out", str(made), success_codes=[0, 1])
    folders = ("--results", "results", "--results", "results/published")
    session.run("seqmoe", "report", *folders, "--out", str(made), *session.posargs)
    _write_api(session, made / "api")
    (made / ".nojekyll").touch()
    shutil.rmtree(site, ignore_errors=True)
    made.rename(site)
    session.log(f"written: {site / 'index.html'}")


def _write_api(session: nox.Session, out: Path) -> None:
    session.install("pdoc", "-c", str(CONSTRAINTS))
    rooms = sorted(f"seqmoe.{init.parent.name}" for init in ROOT.glob("seqmoe/*/__init__.py"))
    session.run("pdoc", "--output-directory", str(out), "--no-show-source", "seqmoe", *rooms)


def _runs(session: nox.Session, command: str) -> bool:
    try:
        session.run(*command.split(), success_codes=[0, 1] if command in MAY_FAIL else [0])
    except CommandFailed:
        session.warn(f"failed: {command}")
        return False
    return True
