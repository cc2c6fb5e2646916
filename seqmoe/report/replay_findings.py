"""What the records of the replay say, in sentences and numbers; for and against the paper alike."""

from __future__ import annotations

from seqmoe.report.facts import Fact
from seqmoe.report.figure3 import OURS as F8
from seqmoe.report.figure3 import POLICIES as FIGURE_3
from seqmoe.report.figure3 import Figure3
from seqmoe.report.figure7 import CACHE_ONLY, INFINITY, OURS, Figure7
from seqmoe.report.replays import Replayed, ReplayGroup
from seqmoe.simulate.policies import POLICIES
from seqmoe.simulate.rows import LEAST_BATCHES

_FIRST_LINK = "rtx4090"
_FACT_RESIDENCY = 0.25


def facts7(figure: Figure7, group: ReplayGroup) -> list[Fact]:
    """The few numbers of figure 7 that matter, at one residency."""
    residency = min(group.residencies, key=lambda r: abs(r - _FACT_RESIDENCY))
    ours, lru = group.find(OURS, residency, _FIRST_LINK), group.find("lru", residency)
    found = []
    if ours is not None and lru is not None:
        printed = [figure.claim(f"hit-{policy}-{round(100 * residency)}") for policy in ("seqmoe", "lru")]
        text = f"{printed[0]:.1%} against {printed[1]:.1%}" if printed[0] and printed[1] else ""
        detail = f"SeqMoE with {residency:.0%} of the experts, LRU without prefetching {lru.row.hit_rate:.1%}"
        found.append(Fact("of the experts are there", f"{ours.row.hit_rate:.1%}", detail, text))
    alone = group.find(CACHE_ONLY, residency)
    if alone is not None and alone.row.gap_recovered is not None:
        found.append(Fact("of the gap by eviction alone", f"{alone.row.gap_recovered:.0%}",
                          f"CacheScore as printed, {residency:.0%} of the experts; 100% is Belady"))  # fmt: skip
    best = _best(group, residency)
    if best is not None and best.row.gap_recovered is not None and alone is not None:
        found.append(
            Fact(
                "of the gap by the best variant",
                f"{best.row.gap_recovered:.0%}",
                f"{best.title}, {best.row.hit_rate:.1%} without prefetching; picked on these sequences",
            )
        )
    if ours is not None and ours.row.used_share is not None:
        found.append(Fact("of the prefetches were used", f"{ours.row.used_share:.0%}",
                          f"{ours.row.sent_per_token:.1f} experts per token are prefetched, "
                          f"{ours.row.loads_per_token:.1f} loaded on demand"))  # fmt: skip
    return found


def sentences7(group: ReplayGroup) -> list[str]:
    """For each residency, whether the forecast beats LRU and LFU and by how much of the gap; then on prefetching."""
    found = [text] if (text := _too_few(group)) else []
    found += [text for residency in group.residencies if (text := _against_history(group, residency))]
    if any(_variant(group, residency) is not None for residency in group.residencies):
        found.append("The best variant is picked by its hit rate on the test sequences themselves: on others its lead "
                     "may be smaller.")  # fmt: skip
    found += [text for residency in group.residencies if (text := _prefetching(group, residency))]
    if prefetching := _against_infinity(group):
        found.append(prefetching)
    creation = [
        f"{one.row.hit_rate:.1%} at {one.row.residency:.0%}" for one in group.line("seqmoe_creation", _FIRST_LINK)[:1]
    ]
    if creation and (selected := group.line(OURS, _FIRST_LINK)):
        found.append(
            f"Reserving a slot for every task when it is created, as printed, gives {creation[0]} instead of "
            f"{selected[0].row.hit_rate:.1%}: tasks then hold more slots than the experts in use."
        )
    return found


def facts3(group: ReplayGroup) -> list[Fact]:
    """What the forecasts keep of the limited oracle's worth."""
    found = []
    for residency in group.residencies:
        ours, oracle = group.find(F8, residency), group.find("belady_8", residency)
        if ours is not None and oracle is not None and ours.row.gap_recovered is not None and oracle.row.gap_recovered:
            found.append(Fact(f"of the gap, {residency:.0%} of the experts", f"{ours.row.gap_recovered:.0%}",
                              f"Belady-F8; the oracle of eight steps {oracle.row.gap_recovered:.0%}"))  # fmt: skip
    return found


def sentence3(figure: Figure3, group: ReplayGroup) -> str:
    """Whether the paper's order of policies holds."""
    broken = []
    for residency in group.residencies:
        rates = {policy: one.row.hit_rate for policy in FIGURE_3 if (one := group.find(policy, residency)) is not None}
        if set(FIGURE_3) <= set(rates):
            order = [rates["belady"], rates["belady_8"], rates[F8], max(rates["lru"], rates["lfu"])]
            if order != sorted(order, reverse=True):
                broken.append(f"{residency:.0%}")
    verdict = f"does not hold at {', '.join(broken)}" if broken else "holds at every residency"
    gaps = [
        100 * (lfu.row.hit_rate - lru.row.hit_rate)
        for lru, lfu in zip(group.line("lru"), group.line("lfu"), strict=False)
    ]
    apart = f" LFU is {min(gaps):+.1f} to {max(gaps):+.1f} points from LRU.".replace("-", "−") if gaps else ""
    return f"The paper's order ({figure.printed()}) {verdict} here.{apart}"


def _against_history(group: ReplayGroup, residency: float) -> str:
    lru, lfu, alone = (group.find(policy, residency) for policy in ("lru", "lfu", CACHE_ONLY))
    if lru is None or lfu is None or alone is None:
        return ""
    rivals = f"LRU has {lru.row.hit_rate:.1%}, LFU {lfu.row.hit_rate:.1%}"
    text = f"At {residency:.0%} {rivals}; CacheScore as printed {_verdict(alone, lru, lfu)}"
    best = _variant(group, residency)
    if best is not None:
        text += f"; the best variant, {_lower(best.title)}, {_verdict(best, lru, lfu)}"
    return text + "."


def _too_few(group: ReplayGroup) -> str:
    count = min((len(one.row.batches) for one in group.rows), default=LEAST_BATCHES)
    if count >= LEAST_BATCHES:
        return ""
    noun = "sequence" if count == 1 else "sequences"
    return (
        f"With {count} test {noun} no interval can be given ({LEAST_BATCHES} are the least): what follows compares "
        f"numbers of {'this one' if count == 1 else 'these'}, and tells nothing of others."
    )


def _prefetching(group: ReplayGroup, residency: float) -> str:
    """SeqMoE with prefetching beside LRU and LFU, as they are and with the same prefetching."""
    lru, lfu, ours = (
        group.find("lru", residency),
        group.find("lfu", residency),
        group.find(OURS, residency, _FIRST_LINK),
    )
    if lru is None or lfu is None or ours is None:
        return ""
    text = (
        f"With prefetching, {group.link_text(_FIRST_LINK)}, SeqMoE at {residency:.0%} {_sides(ours, lru, lfu)} with "
        f"{ours.row.hit_rate:.1%}, where LRU has {lru.row.hit_rate:.1%} and LFU {lfu.row.hit_rate:.1%} without any"
    )
    both = [group.find(f"{name}+matroid", residency, _FIRST_LINK) for name in ("lru", "lfu")]
    same = [one for one in both if one is not None]
    if len(same) == len(both):
        rates = " and ".join(f"{one.row.hit_rate:.1%}" for one in same)
        text += f"; with the same prefetching they have {rates}, and it {_sides(ours, *same)}"
    return text + "."


def _verdict(one: Replayed, lru: Replayed, lfu: Replayed) -> str:
    """Whether it beats both, and its share of the gap."""
    gap = one.row.gap_recovered
    share = "" if gap is None else f", {100 * gap:.0f}% of the way to Belady".replace("-", "−")
    return f"{_sides(one, lru, lfu)} with {one.row.hit_rate:.1%}{share}"


def _sides(one: Replayed, lru: Replayed, lfu: Replayed) -> str:
    """How it does against both: by the paired intervals, or where there are none as the mere numbers are."""
    words = []
    for rival, name in ((lru, "LRU"), (lfu, "LFU")):
        ends = one.ahead_of(rival)
        if ends is None:
            points = one.row.hit_rate - rival.row.hit_rate
            words.append((name, "is above" if points > 0 else "is below" if points < 0 else "equals"))
        else:
            words.append((name, "beats" if ends[0] > 0 else "loses to" if ends[1] < 0 else "equals"))
    verbs = {verb for _, verb in words}
    return f"{words[0][1]} both" if len(verbs) == 1 else " and ".join(f"{verb} {name}" for name, verb in words)


def _against_infinity(group: ReplayGroup) -> str:
    differences = []
    for ours in group.line(OURS, _FIRST_LINK):
        theirs = group.find(INFINITY, ours.row.residency, _FIRST_LINK)
        if theirs is not None:
            points = 100 * (ours.row.hit_rate - theirs.row.hit_rate)
            ends = ours.ahead_of(theirs)
            unsure = " (within the interval)" if ends is not None and ends[0] <= 0 <= ends[1] else ""
            differences.append(f"{points:+.1f} points at {ours.row.residency:.0%}{unsure}".replace("-", "−"))
    if not differences:
        return ""
    return f"Matroid greedy against MoE-Infinity's order, {group.link_text(_FIRST_LINK)}: {', '.join(differences)}."


def _best(group: ReplayGroup, residency: float) -> Replayed | None:
    """The policy that works on forecasts, is no oracle and does not prefetch, of the highest hit rate."""
    known = [
        one
        for one in group.rows
        if one.row.residency == residency and one.row.policy in POLICIES and POLICIES[one.row.policy].forecasts
        and POLICIES[one.row.policy].prefetch is None
    ]  # fmt: skip
    return max(known, key=lambda one: one.row.hit_rate, default=None)


def _variant(group: ReplayGroup, residency: float) -> Replayed | None:
    """The best, if it is not CacheScore as printed."""
    best = _best(group, residency)
    return None if best is None or best.row.policy == CACHE_ONLY else best


def _lower(title: str) -> str:
    return (
        title
        if title[:2].isupper() or title.startswith(("SeqMoE", "CacheScore", "Belady"))
        else title[0].lower() + title[1:]
    )
