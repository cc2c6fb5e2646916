"""The simulator's constants: what each is, which printed figures it was fitted to, and so what is held out."""

from __future__ import annotations

from dataclasses import dataclass

from seqmoe.spec.declared import build, declaration, read_toml
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.paths import Home

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Input:
    """Printed figures that constants may be fitted to.

    Either bars of figure 6, chosen by ``panel``, ``model``, ``system`` and ``x`` (empty: all), or ``claims`` by their
    ids, or ``published`` values from elsewhere, with their ``source``.
    """

    name: str
    panel: str = ""
    model: str = ""
    system: str = ""
    x: tuple[float, ...] = ()
    claims: tuple[str, ...] = ()
    published: dict[str, float] | None = None
    source: str = ""

    def __post_init__(self) -> None:
        kinds = [bool(self.panel), bool(self.claims), bool(self.published)]
        if sum(kinds) != 1:
            raise ValueError(f"input {self.name!r}: give one of panel (bars of figure 6), claims and published")
        if self.published and not self.source:
            raise ValueError(f"input {self.name!r}: published values need a source")

    def has_bar(self, panel: str, model: str, system: str, x: float) -> bool:
        """Whether that bar of figure 6 is among these."""
        return (
            bool(self.panel)
            and self.panel == panel
            and self.model in ("", model)
            and self.system in ("", system)
            and (not self.x or x in self.x)
        )


@dataclass(frozen=True, slots=True)
class Constant:
    """One fitted constant: its ``value`` in ``unit``, the names of the inputs it was ``fitted_on``, and what it is."""

    name: str
    value: float
    unit: str
    fitted_on: tuple[str, ...]
    about: str

    def __post_init__(self) -> None:
        if not self.fitted_on:
            raise ValueError(f"constant {self.name!r}: fitted_on is empty")


@dataclass(frozen=True, slots=True)
class Calibration:
    """All inputs and constants. Whatever is no input is held out."""

    schema: int
    input: tuple[Input, ...]
    constant: tuple[Constant, ...]

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"schema = {self.schema}: this version reads {SCHEMA}; upgrade seqmoe or the declaration")
        names = [item.name for item in self.input]
        for constant in self.constant:
            for name in constant.fitted_on:
                if name not in names:
                    raise ValueError(f"constant {constant.name!r}: fitted_on {name!r}; {nearest(name, names)}")
        for kind, found in (("input", names), ("constant", [item.name for item in self.constant])):
            if len(set(found)) < len(found):
                raise ValueError(f"{kind}: two have the same name")

    def value(self, name: str) -> float:
        """A constant's value; an unknown one is an `InputError`."""
        for constant in self.constant:
            if constant.name == name:
                return constant.value
        raise InputError(f"constant {name!r} is not calibrated; {nearest(name, [item.name for item in self.constant])}")

    def is_input_bar(self, panel: str, model: str, system: str, x: float) -> bool:
        """Whether a bar of figure 6 was fitted to; its own agreement says nothing then."""
        return any(item.has_bar(panel, model, system, x) for item in self.input)

    def is_input_claim(self, claim: str) -> bool:
        """Whether a claim (its id in claims.csv) was fitted to or taken as given."""
        return any(claim in item.claims for item in self.input)

    def published(self, name: str) -> float:
        """A published value that is an input."""
        for item in self.input:
            if item.published and name in item.published:
                return item.published[name]
        raise InputError(f"published value {name!r} is not among the inputs of the calibration")


def load_calibration(home: Home) -> Calibration:
    """Read suites/simulation/calibration.toml."""
    path = declaration(home.suites / "simulation", "calibration", "calibration")
    return build(Calibration, read_toml(path), str(path))
