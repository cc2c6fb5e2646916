"""Protects the house: a room imports only from the rooms before it, and only some rooms know torch."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "seqmoe"
ROOMS = (
    "spec", "core", "adapters", "traces", "predictor", "simulate", "runtime", "reference", "harness", "report",
    "serve", "cli",
)  # fmt: skip
KNOW_TORCH = {"adapters", "predictor", "runtime", "reference", "traces/collect"}


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if _room(path) in ROOMS]


def _knows_torch(path: Path) -> bool:
    inner = path.relative_to(PACKAGE)
    return any(inner.is_relative_to(place) for place in KNOW_TORCH)


def _imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return names


def test_every_room_has_files():
    assert {_room(path) for path in FILES} == set(ROOMS)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_only_from_rooms_before(path):
    rank = ROOMS.index(_room(path))
    for name in _imports(path):
        if name.startswith("seqmoe."):
            other = name.split(".")[1]
            assert ROOMS.index(other) <= rank, f"{path.name} imports {name} from a later room"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_torch_stays_in_its_rooms(path):
    if not _knows_torch(path):
        assert not {"torch", "transformers"} & {name.split(".")[0] for name in _imports(path)}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_stay_small(path):
    assert len(path.read_text().splitlines()) <= 300
