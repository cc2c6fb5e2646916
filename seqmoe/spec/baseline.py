"""Baselines as declared in baselines/<folder>/baseline.toml: what each is, and what it can and cannot run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seqmoe.spec.declared import build, read_toml
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.system import SYSTEMS

ANY = "*"
DEVICES = ("cpu", "cuda")
MODEL_FORMATS = ("hf", "gguf")
PROFILES = ("quick", "full")
RESIDENCIES = ("any", "full")


@dataclass(frozen=True, slots=True)
class Capability:
    """One row of a capability matrix; the first row that names a case decides it.

    ``families`` are Transformers ``model_type``s, ``formats`` storages of the experts (bf16, f32, fp8, mxfp4),
    ``devices`` cpu or cuda; "*" stands for all. ``residency`` "full" means that only 1.0 can be run, and ``reason``
    says why, as it does for a case that is not supported.
    """

    families: tuple[str, ...]
    formats: tuple[str, ...]
    devices: tuple[str, ...]
    supported: bool
    residency: str = "any"
    reason: str = ""

    def __post_init__(self) -> None:
        for name in ("families", "formats", "devices"):
            if not getattr(self, name):
                raise ValueError(f'{name} is empty; name at least one, or "*" for all')
        for device in self.devices:
            if device not in (*DEVICES, ANY):
                raise ValueError(f"devices: {device!r}; {nearest(device, (*DEVICES, ANY))}")
        if self.residency not in RESIDENCIES:
            raise ValueError(f"residency = {self.residency!r}; {nearest(self.residency, RESIDENCIES)}")
        if not self.reason and (not self.supported or self.residency != "any"):
            raise ValueError("a row that excludes something needs a reason")

    def covers(self, family: str, format: str, device: str) -> bool:
        """Whether this row speaks of that case."""
        pairs = ((self.families, family), (self.formats, format), (self.devices, device))
        return all(value in named or ANY in named for named, value in pairs)


@dataclass(frozen=True, slots=True)
class Baseline:
    """One wrapped system. ``name`` is its name in the paper, ``model_format`` what its worker is given (hf or gguf).

    ``requirements`` names one file per profile, ``remove`` packages that are uninstalled afterwards. ``residency``,
    ``hit_rate``, ``needs`` and ``install`` are for people: how residency maps to its flags, where a hit rate comes
    from, what the machine must have, and the command that installs it.
    """

    name: str
    title: str
    homepage: str
    licence: str
    python: str
    model_format: str
    requirements: dict[str, str]
    residency: str
    hit_rate: str
    needs: str
    install: str
    capability: tuple[Capability, ...]
    folder: Path
    remove: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.model_format not in MODEL_FORMATS:
            raise ValueError(f"model_format = {self.model_format!r}; {nearest(self.model_format, MODEL_FORMATS)}")
        if sorted(self.requirements) != sorted(PROFILES):
            raise ValueError(f"requirements: name one file for each of {', '.join(PROFILES)}")
        for name in (*self.requirements.values(), "worker.py"):
            if not (self.folder / name).is_file():
                raise ValueError(f"{name}: no such file in {self.folder}")

    @property
    def key(self) -> str:
        """The folder's name, by which it is installed: ``nox -s baseline-<key>``."""
        return self.folder.name

    @property
    def worker(self) -> Path:
        """The program that speaks the worker protocol."""
        return self.folder / "worker.py"

    def supports(self, family: str, format: str, device: str, residency: float) -> str | None:
        """None if this system can run the case, else the reason why not; nothing is started to find out."""
        for row in self.capability:
            if row.covers(family, format, device):
                refused = not row.supported or (row.residency == "full" and residency != 1.0)
                return row.reason if refused else None
        return f"{self.name}'s capability matrix has no row for {family} in {format} on {device}"


def load_baselines(folder: Path) -> dict[str, Baseline]:
    """Read every ``<folder>/*/baseline.toml``, keyed and sorted by the folder's name.

    A name that is one of our systems', or another baseline's name or folder, is an `InputError`: records and --only
    could not tell them apart.
    """
    baselines: dict[str, Baseline] = {}
    for path in sorted(folder.glob("*/baseline.toml")):
        table = read_toml(path)
        if "folder" in table:
            raise InputError(f"{path}: unknown key 'folder'; the folder is where the file lies")
        baselines[path.parent.name] = build(Baseline, {**table, "folder": path.parent}, str(path))
    for baseline in baselines.values():
        _require_own_name(baseline, baselines)
    return baselines


def _require_own_name(baseline: Baseline, baselines: dict[str, Baseline]) -> None:
    where = f"{baseline.folder / 'baseline.toml'}: name = {baseline.name!r}"
    if baseline.name in SYSTEMS:
        raise InputError(f"{where}: is a system of our own runtime; give the baseline another name")
    for other in baselines.values():
        if other is not baseline and baseline.name in (other.name, other.key):
            raise InputError(f"{where}: {other.folder} goes by it too; give one of them another name")


def find_baseline(baselines: dict[str, Baseline], name: str) -> Baseline:
    """The baseline of that folder or of that name in the paper; an unknown one is an `InputError` with the nearest."""
    for key, baseline in baselines.items():
        if name in (key, baseline.name):
            return baseline
    raise InputError(f"baseline {name!r} is unknown; {nearest(name, baselines)}")
