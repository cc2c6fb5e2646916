"""Baselines as declared in baselines/<folder>/baseline.toml: what each is, and what it can and cannot run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from seqmoe.spec.declared import build, read_toml
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.system import SYSTEMS

ANY = "*"
DEVICES = ("cpu", "cuda")
MODEL_FORMATS = ("hf", "gguf")
GGUF_TYPES = ("f32", "bf16")
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
class Kernel:
    """A part of the system that runs where the whole does not: ``program`` prints what it measured as one JSON object.

    It is never taken for the system: no cell runs it. ``about`` says what the part is.
    """

    program: str
    about: str


@dataclass(frozen=True, slots=True)
class Trial:
    """What of the quick profile can be asked where the system cannot run, so that the answer is the package's own.

    ``command`` is a program of the environment with its arguments, ``about`` says what was installed.
    """

    command: tuple[str, ...]
    about: str

    def __post_init__(self) -> None:
        if not self.command:
            raise ValueError('command is empty; name a program of the environment, for example ["ft", "--version"]')


@dataclass(frozen=True, slots=True)
class Variant:
    """The same system on other weights, a row of its own in every table. ``gguf`` is the type of its matrices."""

    gguf: str

    def __post_init__(self) -> None:
        if self.gguf not in GGUF_TYPES:
            raise ValueError(f"gguf = {self.gguf!r}; {nearest(self.gguf, GGUF_TYPES)}")


@dataclass(frozen=True, slots=True)
class Baseline:
    """One wrapped system. ``name`` is its name in the paper, ``model_format`` what its worker is given (hf or gguf).

    ``requirements`` names one file per profile, ``bare`` what the profile installs without its dependencies, ``remove``
    packages that are uninstalled afterwards. ``kernel`` is the part that the quick profile runs where the system cannot
    run, ``trial`` what is asked where there is not even that, ``variants`` are named beside it in suites.
    ``residency``, ``hit_rate``, ``needs`` and ``install`` are for people: how residency maps to its flags, where a hit
    rate comes from, what the machine must have, and the command that installs it.
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
    bare: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kernel: Kernel | None = None
    trial: Trial | None = None
    variants: dict[str, Variant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.model_format not in MODEL_FORMATS:
            raise ValueError(f"model_format = {self.model_format!r}; {nearest(self.model_format, MODEL_FORMATS)}")
        if sorted(self.requirements) != sorted(PROFILES):
            raise ValueError(f"requirements: name one file for each of {', '.join(PROFILES)}")
        for profile in self.bare:
            if profile not in PROFILES:
                raise ValueError(f"bare: {profile!r} is no profile; {nearest(profile, PROFILES)}")
        if self.kernel and self.trial:
            raise ValueError("kernel and trial: a kernel already says what works here; leave trial out")
        if self.variants and self.model_format != "gguf":
            raise ValueError(f"variants: their key gguf means nothing to a system that loads {self.model_format!r}")
        programs = ("worker.py", *([self.kernel.program] if self.kernel else []))
        for name in (*self.requirements.values(), *programs):
            if not (self.folder / name).is_file():
                raise ValueError(f"{name}: no such file in {self.folder}")

    @property
    def key(self) -> str:
        """The folder's name, by which it is installed."""
        return self.folder.name

    @property
    def session(self) -> str:
        """The nox session that installs it and runs its self-test."""
        return f"baseline-{self.key.replace('_', '-')}"

    def gguf(self, system: str) -> str:
        """Type of the matrices in the GGUF that a cell's system, this baseline or a variant of it, is given."""
        return self.variants[system].gguf if system in self.variants else GGUF_TYPES[0]

    def pinned(self, profile: str) -> tuple[str, ...]:
        """What a profile installs by name and version, as its requirements say it."""
        lines = (self.folder / self.requirements[profile]).read_text(encoding="utf-8").splitlines()
        wanted = [line.split(";")[0].strip() for line in lines if line.strip() and not line.startswith("#")]
        return (*self.bare.get(profile, ()), *wanted)

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
    """The baseline of that folder (dashes or not), name or variant; an unknown one is an `InputError`."""
    for key, baseline in baselines.items():
        if name in (key, baseline.name, *baseline.variants) or name.replace("-", "_") == key:
            return baseline
    raise InputError(f"baseline {name!r} is unknown; {nearest(name, baselines)}")
