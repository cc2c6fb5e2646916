"""What a simulated cell's numbers come from, as a digest: when it changes, the cell is computed anew."""

from __future__ import annotations

from pathlib import Path

from seqmoe.simulate import timeline
from seqmoe.spec.files import files_sha256
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import Cell
from seqmoe.traces import synthesis


def simulator_digest(home: Home, cell: Cell) -> str:
    """SHA-256 over the constants, the declarations of the cell's machine and model, the claims, and the code."""
    declared = [
        home.suites / "simulation" / "calibration.toml",
        home.suites / "hardware" / f"{cell.hardware}.toml",
        home.suites / "models" / f"{cell.model}.toml",
        home.paper / "claims.csv",
    ]
    folders = [Path(str(package.__file__)).parent for package in (timeline, synthesis)]
    code = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    return files_sha256([*declared, *code])
