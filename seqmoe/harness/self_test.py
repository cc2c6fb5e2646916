"""What works of a baseline on this machine: capability matrix, environment, and eight tokens of the reference model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from seqmoe.harness import environments
from seqmoe.harness.devices import Devices
from seqmoe.harness.executors.local import LocalExecutor
from seqmoe.harness.fingerprint import fingerprint
from seqmoe.harness.kernels import run_kernel, run_trial
from seqmoe.harness.launch import HomeLauncher
from seqmoe.harness.plan import Run
from seqmoe.harness.record import Status
from seqmoe.harness.request import Requests
from seqmoe.spec.baseline import Baseline
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import Cell

_TOKENS = 8


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Outcome of a self-test; ``tokens`` counts what was really generated.

    ``tried`` says whether the baseline was started; an ``ok`` without it means only that nothing stands in the way.
    ``kernel`` is what its kernel printed, where the system cannot run here but that part of it did; ``trial`` what the
    installed package said, where not even that can.
    """

    name: str
    status: Status
    tokens: int
    tried: bool
    kernel: str = ""
    trial: str = ""

    @property
    def works(self) -> bool:
        """Whether the system, or the part of it that is declared to run alone, does something here."""
        return self.status.ok or bool(self.kernel)

    @property
    def line(self) -> str:
        """One line for people."""
        if self.kernel:
            return f"{self.name}: kernel only: {self.kernel}; the system: {self.status.kind}: {self.status.reason}"
        if self.status.ok and not self.tried:
            return f"{self.name}: installed, not tried"
        if self.status.ok:
            return f"{self.name}: works here ({self.tokens} tokens of the reference model at full load)"
        more = "".join(f"; {text}" for text in (self.trial, self.status.hint) if text)
        return f"{self.name}: {self.status.kind}: {self.status.reason}{more}"

    def as_dict(self) -> dict[str, str | int | bool]:
        """Plain values for JSON."""
        status = {"status": self.status.kind, "reason": self.status.reason, "hint": self.status.hint}
        parts = {"kernel": self.kernel, "trial": self.trial}
        return {"name": self.name, **status, "tokens": self.tokens, "tried": self.tried, **parts}


def install_and_test(
    baseline: Baseline, home: Home, profile: str = "quick", progress: Callable[[str], None] = lambda line: None
) -> SelfTest:
    """Make the environment of ``profile`` (see `seqmoe.harness.environments.install`), then run the self-test.

    Where the capability matrix leaves nothing that could run on this host, nothing is fetched but the kernel or the
    trial that the baseline declares, if any; the outcome is ``unsupported``. An installation that fails is
    ``not_installed``, with the last words of the failing command.
    """
    environments.require_profile(profile)
    environment = fingerprint(home)
    if Devices(home, environment).never_here(baseline, profile):
        refusal = HomeLauncher(home, environment).obstacle(_cell(baseline))
        if refusal is not None and refusal.kind == "unsupported":
            return _parts_only(baseline, home, refusal, progress)
    try:
        environments.install(baseline, home, profile, progress)
    except environments.InstallError as error:
        return SelfTest(baseline.name, Status("not_installed", error.reason, error.hint), 0, tried=False)
    return self_test(baseline, home, run=True)


def _parts_only(baseline: Baseline, home: Home, refusal: Status, progress: Callable[[str], None]) -> SelfTest:
    """The system cannot run here: install and run the part that can, or ask what installs, if one is declared."""
    if baseline.kernel is None and baseline.trial is None:
        return SelfTest(baseline.name, refusal, 0, tried=False)
    try:
        environments.install(baseline, home, "quick", progress)
        kernel = run_kernel(baseline, home) if baseline.kernel else ""
        trial = run_trial(baseline, home) if baseline.trial else ""
    except environments.InstallError as error:
        return SelfTest(baseline.name, Status("not_installed", error.reason, error.hint), 0, tried=False)
    return SelfTest(baseline.name, refusal, 0, tried=bool(kernel), kernel=kernel, trial=trial)


def self_test(baseline: Baseline, home: Home, run: bool, threads: int = 1, timeout: float = 600.0) -> SelfTest:
    """Check without starting anything; with ``run``, start the worker and let it generate."""
    cell = _cell(baseline)
    environment = fingerprint(home) | {"threads": threads}
    launcher = HomeLauncher(home, environment)
    obstacle = launcher.obstacle(cell)
    if obstacle is not None:
        return SelfTest(baseline.name, obstacle, 0, tried=False)
    if not run:
        return SelfTest(baseline.name, Status("ok"), 0, tried=False)
    with LocalExecutor(launcher, Requests(home, environment, threads), threads, timeout) as executor:
        ((_, outcome),) = executor.execute([Run(cell, 0, launcher.group(cell))])
    tokens = sum(len(prompt.tokens) for prompt in outcome.observations.prompts)
    return SelfTest(baseline.name, outcome.status, tokens, tried=True)


def _cell(baseline: Baseline) -> Cell:
    return Cell(
        suite="self-test",
        panel="self-test",
        system=baseline.name,
        model="reference",
        lane="measured",
        residency=1.0,
        batch=1,
        dataset="mixed",
        prompts=1,
        decode_tokens=_TOKENS,
    )
