"""Two revisions of the package, each complete with its built extension in a folder of its own."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seqmoe.spec.errors import InputError

NATIVE = "seqmoe/core/native"
_PACKAGE = "seqmoe"
# Files beside the sources of the extension that decide what is built.
_BUILD_FILES = ("pyproject.toml",)
# Not needed to build the package or to run it.
_LEFT_OUT = ("tests", "docs", "reports", "results/published")


class BuildError(RuntimeError):
    """The extension of a revision could not be built; the message ends with the compiler's last words."""


@dataclass(frozen=True, slots=True)
class Side:
    """One revision: ``site`` is what goes in front of Python's path, ``revision`` its hash, ``+`` behind if changed."""

    site: Path
    revision: str


@contextmanager
def revision_side(
    clone: Path, revision: str, scratch: Path, builds: Path, say: Callable[[str], None]
) -> Iterator[Side]:
    """A revision in a git worktree below ``scratch``, which is removed at the end; its extension is kept in ``builds``.

    Raises `InputError` for a revision that git does not know, `BuildError` for one that does not build.
    """
    found = _git(clone, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", check=False)
    if not found or revision.startswith("-"):
        raise InputError(f"--against {revision}: git knows no such revision in {clone}")
    tree = scratch / "against"
    _git(clone, "worktree", "add", "--detach", "--force", str(tree), found)
    try:
        _place_extension(tree, builds, say)
        yield Side(tree, found)
    finally:
        _git(clone, "worktree", "remove", "--force", str(tree), check=False)
        shutil.rmtree(tree, ignore_errors=True)
        _git(clone, "worktree", "prune", check=False)


def working_side(clone: Path, scratch: Path, builds: Path, say: Callable[[str], None]) -> Side:
    """What lies in the clone now, uncommitted changes too, copied below ``scratch`` so that edits do not disturb it."""
    tree = scratch / "now"
    without = [f":(exclude){name}" for name in _LEFT_OUT]
    listed = _git(clone, "ls-files", "-z", "--cached", "--others", "--exclude-standard", ".", *without)
    for name in filter(None, listed.split("\0")):
        source = clone / name
        if source.is_file():  # a deleted file is still listed
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, tree / name)
    _place_extension(tree, builds, say)
    changed = _git(clone, "status", "--porcelain", "--", _PACKAGE)
    return Side(tree, _git(clone, "rev-parse", "HEAD") + ("+" if changed else ""))


def extension_key(tree: Path) -> str:
    """Sixteen hex digits over all that decides the built extension: its sources, the build's settings, the Python."""
    digest = hashlib.sha256(f"{sys.implementation.cache_tag} {os.uname().machine}".encode())
    files = [*(tree / name for name in _BUILD_FILES), *sorted((tree / NATIVE).rglob("*"))]
    for path in files:
        if path.is_file():
            digest.update(str(path.relative_to(tree)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _place_extension(tree: Path, builds: Path, say: Callable[[str], None]) -> None:
    """Put the extension beside the package's core; one that was built from the same sources is taken again."""
    kept = builds / extension_key(tree)
    if not list(kept.glob("_native*.so")):
        say(f"building the extension of {tree.name}")
        _build(tree, kept)
    for old in (tree / _PACKAGE / "core").glob("_native*.so"):
        old.unlink()
    for built in kept.glob("_native*.so"):
        shutil.copy2(built, tree / _PACKAGE / "core" / built.name)


def _build(tree: Path, kept: Path) -> None:
    wheels = kept.with_suffix(".partial")
    shutil.rmtree(wheels, ignore_errors=True)
    # With the build's own requirements at hand, nothing has to be fetched.
    at_hand = all(importlib.util.find_spec(name) for name in ("scikit_build_core", "nanobind"))
    command = [sys.executable, "-m", "pip", "wheel", str(tree), "--no-deps", "-q", "-w", str(wheels)]
    done = _run([*command, *(["--no-build-isolation"] if at_hand else [])])
    if done.returncode:
        raise BuildError(f"{tree.name} does not build: " + "\n".join(done.stderr.strip().splitlines()[-15:]))
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        for name in packed.namelist():
            if Path(name).name.startswith("_native") and name.endswith(".so"):
                (wheels / Path(name).name).write_bytes(packed.read(name))
    wheel.unlink()
    if not list(wheels.glob("_native*.so")):
        raise BuildError(f"{tree.name}: its wheel holds no extension of seqmoe")
    shutil.rmtree(tree / "build", ignore_errors=True)
    wheels.rename(kept)


def _git(clone: Path, *arguments: str, check: bool = True) -> str:
    done = _run(["git", "-C", str(clone), *arguments])
    if done.returncode and check:
        raise InputError(f"git {arguments[0]} in {clone}: {done.stderr.strip() or 'failed'}")
    return done.stdout.strip() if not done.returncode else ""


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)
