"""The verdict on each claim, by rules that are written in docs/verdicts.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seqmoe.harness.claims.context import Context
from seqmoe.harness.claims.evidence import COMPUTED, Evidence, best_first
from seqmoe.harness.claims.metrics import METRICS
from seqmoe.harness.record import Record
from seqmoe.harness.studies.record import StudyRecord
from seqmoe.spec.calibration import Calibration, load_calibration
from seqmoe.spec.claim import ORDER, Claim, ClaimTest, load_claim_tests, load_claims
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.paths import Home

REPRODUCED, NOT_REPRODUCED, REFUTED = "reproduced", "not reproduced", "refuted"
UNTESTED, INPUT = "untested here", "input"
VERDICTS = (REPRODUCED, NOT_REPRODUCED, REFUTED, UNTESTED, INPUT)
# Only what was observed or is arithmetic can refute; a model of a machine can be wrong itself.
_CAN_REFUTE = ("measured", COMPUTED)


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim, how it is tested, its verdict, and the evidence, the one that decided first."""

    claim: Claim
    test: ClaimTest
    verdict: str
    evidence: tuple[Evidence, ...]

    @property
    def deciding(self) -> Evidence | None:
        """The evidence behind the verdict: none for a claim that is untested here, and none for an input."""
        return self.evidence[0] if self.evidence and self.verdict not in (UNTESTED, INPUT) else None

    def agrees(self, evidence: Evidence) -> bool:
        """Whether evidence is what the paper says: within the tolerance, or of the same order."""
        return agrees(self.claim, self.test, evidence)


def judge(home: Home, records: Iterable[Record | StudyRecord]) -> list[Judged]:
    """A verdict for every claim, in the order of claims.csv. `InputError` for a claim that is declared wrongly."""
    tests, calibration = load_claim_tests(home), load_calibration(home)
    context = Context.of(home, records)
    return [_judged(context, calibration, claim, tests.of(claim.id)) for claim in load_claims(home)]


def counts(judged: Sequence[Judged]) -> dict[str, int]:
    """How many claims have each verdict, in the order of `VERDICTS`."""
    found = Counter(one.verdict for one in judged)
    return {verdict: found[verdict] for verdict in VERDICTS}


def agrees(claim: Claim, test: ClaimTest, evidence: Evidence) -> bool:
    """Whether evidence is what the paper says."""
    if evidence.sample is None:
        return bool(evidence.agrees)
    assert claim.value is not None
    low, high = test.band(claim.value)
    if claim.unit.endswith("at least"):
        return evidence.sample.value >= low
    return low <= evidence.sample.value <= high


def contradicts(claim: Claim, test: ClaimTest, evidence: Evidence) -> bool:
    """Whether evidence and the paper cannot both be right: its whole interval, or an exact number, is outside."""
    if evidence.sample is None:
        return evidence.contradicts
    assert claim.value is not None
    low, high = test.band(claim.value)
    sample = evidence.sample
    if not sample.has_interval and evidence.lane != COMPUTED:
        return False
    least, most = (sample.low, sample.high) if sample.has_interval else (sample.value, sample.value)
    return most < low or (least > high and not claim.unit.endswith("at least"))


def _judged(context: Context, calibration: Calibration, claim: Claim, test: ClaimTest) -> Judged:
    evidence: list[Evidence] = []
    bars = []
    if test.metric:
        if test.metric not in METRICS:
            where = f"{context.home.suites / 'claims.toml'}: metric = {test.metric!r}"
            raise InputError(f"{where}; {nearest(test.metric, METRICS)}")
        metric = METRICS[test.metric]
        evidence = best_first(metric.find(context, claim, test.options), context.is_reference)
        bars = metric.bars(context, claim, test.options)
    given = bool(bars) and all(calibration.is_input_bar(b.panel, b.model, b.system, b.x) for b in bars)
    if given or calibration.is_input_claim(claim.id):
        return Judged(claim, test, INPUT, tuple(evidence))
    return Judged(claim, test, _verdict(context, claim, test, evidence), tuple(evidence))


def _verdict(context: Context, claim: Claim, test: ClaimTest, evidence: Sequence[Evidence]) -> str:
    own = [one for one in evidence if one.own_terms]
    if own:
        first = own[0]
        if agrees(claim, test, first):
            return REPRODUCED
        if first.lane in _CAN_REFUTE and contradicts(claim, test, first):
            return REFUTED
        return NOT_REPRODUCED
    if test.kind == ORDER and evidence:
        # A method's claim is not of one model only, but another model's answer cannot refute it.
        real = [one for one in evidence if not context.is_reference(one.model)] or evidence
        return REPRODUCED if all(agrees(claim, test, one) for one in real) else NOT_REPRODUCED
    return UNTESTED
