"""The paper's claims, and how each is tested: the declaration suites/claims.toml beside results/paper/claims.csv."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from seqmoe.spec.declared import build, read_toml
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.paths import Home
from seqmoe.spec.printed import claim_rows

SCHEMA = 1
# A number is a statement on the models it names; an order of policies is one on a method, whatever the model.
KINDS = NUMBER, ORDER = ("number", "order")


@dataclass(frozen=True, slots=True)
class Claim:
    """One row of claims.csv. ``value`` is None for an order, a set or an invariance; ``model`` may be ``all``."""

    id: str
    figure: str
    statement: str
    model: str
    value: float | None
    unit: str
    source: str


@dataclass(frozen=True, slots=True)
class ClaimTest:
    """How some claims are tested.

    ``metric`` is one of `seqmoe.harness.claims.metrics.METRICS`, empty where no record can tell; ``options`` are its
    own. A value within ``tolerance`` of the printed one agrees: in the claim's unit, or ``relative`` as a share of it.
    ``why`` gives the reason of the tolerance, ``takes`` what a test on the paper's own terms needs; ``remark`` is what
    a reader of the verdict should know.
    """

    claims: tuple[str, ...]
    takes: str
    metric: str = ""
    kind: str = NUMBER
    tolerance: float = 0.0
    relative: bool = False
    why: str = ""
    remark: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.claims:
            raise ValueError("claims is empty: the test would test nothing")
        if not self.takes:
            raise ValueError("takes is empty: say what a test on the paper's own terms needs")
        if self.kind not in KINDS:
            raise ValueError(f"kind = {self.kind!r}; {nearest(self.kind, KINDS)}")
        if self.tolerance < 0:
            raise ValueError(f"tolerance = {self.tolerance}: must not be negative")
        if self.metric and not self.why:
            raise ValueError(f"metric = {self.metric!r}: why is empty: say why this tolerance or rule")

    def band(self, printed: float) -> tuple[float, float]:
        """Values that agree with the printed one, ends included."""
        width = self.tolerance * abs(printed) if self.relative else self.tolerance
        return printed - width, printed + width


@dataclass(frozen=True, slots=True)
class ClaimTests:
    """All tests; every claim is in exactly one."""

    schema: int
    test: tuple[ClaimTest, ...]

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"schema = {self.schema}: this version reads {SCHEMA}; upgrade seqmoe or the declaration")
        names = [name for test in self.test for name in test.claims]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"claims: {', '.join(twice)} declared twice")

    def of(self, claim: str) -> ClaimTest:
        """The test of a claim by its id."""
        for test in self.test:
            if claim in test.claims:
                return test
        raise InputError(f"suites/claims.toml: claim {claim!r} of claims.csv has no test; add it to one")


def load_claims(home: Home) -> tuple[Claim, ...]:
    """All claims that the paper prints, in the order of claims.csv."""
    return tuple(
        Claim(
            id=row["id"],
            figure=row["figure"],
            statement=row["statement"],
            model=row["model"],
            value=float(row["value"]) if row["value"] else None,
            unit=row["unit"],
            source=row["source"],
        )
        for row in claim_rows(home)
    )


def load_claim_tests(home: Home) -> ClaimTests:
    """Read suites/claims.toml; a test of a claim that claims.csv lacks is an `InputError`."""
    path = home.suites / "claims.toml"
    tests = build(ClaimTests, read_toml(path), str(path))
    known = {claim.id for claim in load_claims(home)}
    for test in tests.test:
        for name in test.claims:
            if name not in known:
                raise InputError(f"{path}: claims: {name!r} is not in claims.csv; {nearest(name, known)}")
    return tests
