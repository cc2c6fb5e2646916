"""The baselines' own Python environments: a virtual environment each, made once, never taken as made when half-made."""

from __future__ import annotations

import collections
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from seqmoe.spec.baseline import PROFILES, Baseline
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.files import replacing
from seqmoe.spec.paths import Home

_STAMP = "seqmoe-installed.json"
_TAIL_LINES = 15
# These would make the new environment see packages of the one that makes it.
_FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_CONSTRAINT")


class InstallError(RuntimeError):
    """An environment could not be made. ``reason`` ends with what the failing command printed last."""

    def __init__(self, name: str, reason: str, hint: str) -> None:
        super().__init__(f"{name}: {reason}; {hint}")
        self.reason = reason
        self.hint = hint


def environment_folder(baseline: Baseline, home: Home) -> Path:
    """Where the baseline's environment lies, made or not."""
    return home.environments / baseline.key


def environment_python(baseline: Baseline, home: Home) -> Path:
    """The interpreter that runs the baseline's worker."""
    return environment_folder(baseline, home) / "bin" / "python"


def installed_profile(baseline: Baseline, home: Home) -> str | None:
    """The profile whose present requirements the environment was made from, or None if it must be made (again)."""
    stamp = environment_folder(baseline, home) / _STAMP
    if not stamp.is_file() or not environment_python(baseline, home).exists():
        return None
    try:
        made = json.loads(stamp.read_text(encoding="utf-8"))
        profile, hashed = str(made["profile"]), made["hash"]
    except (ValueError, KeyError, TypeError):
        return None
    return profile if hashed == _requirements_hash(baseline, profile) else None


def is_installed(baseline: Baseline, home: Home) -> bool:
    """Whether the environment is complete, and made from requirements that have not changed since."""
    return installed_profile(baseline, home) is not None


def install(
    baseline: Baseline, home: Home, profile: str = "quick", progress: Callable[[str], None] = lambda line: None
) -> Path:
    """Make the environment unless it is there; returns its interpreter. A second call takes no time.

    ``progress`` is given every line that pip prints. The stamp that makes an environment count is written last, after
    every command has succeeded; whatever an interrupted call left is removed first. Raises `InstallError` when a
    command fails, `InputError` for an unknown profile.
    """
    require_profile(profile)
    folder, python = environment_folder(baseline, home), environment_python(baseline, home)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(folder.with_name(f".{folder.name}.lock")):
        if installed_profile(baseline, home) == profile:
            return python
        shutil.rmtree(folder, ignore_errors=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input"]
        requirements = baseline.folder / baseline.requirements[profile]
        _run([sys.executable, "-m", "venv", str(folder)], baseline, progress)
        _run([*pip, "install", "-r", str(requirements)], baseline, progress)
        if bare := baseline.bare.get(profile):
            _run([*pip, "install", "--no-deps", *bare], baseline, progress)
        if baseline.remove:
            _run([*pip, "uninstall", "-y", *baseline.remove], baseline, progress)
        _write_stamp(folder / _STAMP, {"profile": profile, "hash": _requirements_hash(baseline, profile)})
    return python


def require_profile(profile: str) -> None:
    """Raise an `InputError` for a profile that no baseline has."""
    if profile not in PROFILES:
        raise InputError(f"profile {profile!r} is unknown; {nearest(profile, PROFILES)}")


def _requirements_hash(baseline: Baseline, profile: str) -> str:
    if profile not in baseline.requirements:
        return ""
    content = (baseline.folder / baseline.requirements[profile]).read_bytes()
    version = f"python {sys.version_info.major}.{sys.version_info.minor} remove {baseline.remove}"
    version += f" bare {baseline.bare[profile]}" if profile in baseline.bare else ""
    return hashlib.sha256(version.encode() + content).hexdigest()


def _write_stamp(path: Path, stamp: dict[str, str]) -> None:
    with replacing(path) as partial:
        partial.write_text(json.dumps(stamp), encoding="utf-8")


def _run(command: Sequence[str], baseline: Baseline, progress: Callable[[str], None]) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    tail: collections.deque[str] = collections.deque(maxlen=_TAIL_LINES)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                tail.append(line.rstrip())
                progress(line.rstrip())
        except BaseException:
            # pip's compilers and venv's ensurepip would go on writing into a folder that the next call removes.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode != 0:
        said = " | ".join(line for line in tail if line.strip()) or "nothing"
        reason = f"{' '.join(command)} ended with code {process.returncode}; it said: {said}"
        raise InstallError(baseline.name, reason, f"{baseline.name} needs {baseline.needs}")


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """Let one process at a time make an environment; the others wait and then find it made."""
    with lock.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
