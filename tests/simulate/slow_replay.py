"""Every policy as its definition says, one decision at a time: what the score arrays are held to."""

from __future__ import annotations

import numpy as np
from replay_samples import EXPERTS, LAYERS, RANGES

ROWS = 8


class Moment:
    """What is known of one expert as event (step, layer) decides whom to evict."""

    def __init__(self, active, rows, use, prefill, step, layer, of_layer, expert):
        self.rows, self.use = rows, use
        self.prefill = prefill
        # The layer's own last event, and the last step that its range was forecast after.
        self.event = step if of_layer < layer else step - 1
        (last,) = [end for begin, end in RANGES if begin <= of_layer < end]
        self.forecast = step if last - 1 < layer else step - 1
        self.layer, self.expert = of_layer, expert
        self.uses = [t for t in range(len(active)) if active[t, of_layer, expert]]
        self.past = [t for t in self.uses if t <= self.event]
        self.future = [t for t in self.uses if t > self.event]

    def position(self, step):
        """Of the expert's layer in a step."""
        return step * LAYERS + self.layer

    def ahead(self, least=0):
        """The forecast from the layer's next event on, or from row ``least`` of it on; zeros before the first."""
        if self.forecast < 0:
            return np.zeros(ROWS)
        first = max(self.event - self.forecast, 0)
        return self.rows[self.forecast, :, self.layer, self.expert].astype(float)[max(first, least) :][:ROWS]

    def passed(self):
        """Whether the layer has run since it was forecast."""
        return self.event == self.forecast + 1

    def share(self):
        """Of the steps so far that used the expert."""
        return len(self.past) / (self.event + 1)


def lru(m):
    return m.position(m.past[-1])


def lfu(m):
    return len(m.past), m.past[-1], m.layer


def lfu_decay(m):
    # As of position 0 for all: a use weighs the more, the later it was.
    return sum(0.95 ** (-m.position(t) / LAYERS) for t in m.past)


def prefill_hot(m):
    return sum(t < m.prefill for t in m.past)


def belady(m):
    return -m.position(m.future[0]) if m.future else -np.inf


def belady_8(m):
    if m.future and m.future[0] <= m.event + 8:
        return 1, -m.position(m.future[0])
    return 0, m.position(m.past[-1])


def belady_f8(m):
    rows = m.ahead()
    expected, unused = 1.0, 1.0
    for chance in rows:
        unused *= 1 - chance
        expected += unused
    return -(m.position(m.event) / LAYERS + expected)


def seqmoe_cache_only(m):
    rows = m.ahead(least=1) if m.forecast >= 0 else np.zeros(ROWS)
    return float(sum(0.5**j * chance for j, chance in enumerate(rows)))


def seqmoe_next(m):
    return float(sum(0.5**j * chance for j, chance in enumerate(m.ahead())))


def mix(m):
    if m.passed():
        return 0.3 * m.ahead()[0] + 0.7 * m.share()
    return 0.6 * m.ahead()[0] + 0.4 * m.share()


def use_head(m):
    if m.forecast < 0:
        return 0.0
    use = float(m.use[m.forecast, m.layer, m.expert])
    if not m.passed():
        return use
    return (use - 0.2 * float(m.rows[m.forecast, 0, m.layer, m.expert])) / 0.8


DEFINITIONS = {
    function.__name__: function
    for function in (
        lru, lfu, lfu_decay, prefill_hot, belady, belady_8, belady_f8, seqmoe_cache_only, seqmoe_next, mix, use_head,
    )
}  # fmt: skip


def hits(request, predictor, name, slots, warm_up=0):
    """Hits and needed experts of the decode steps after the warm-up, event by event, from an empty pool."""
    steps = len(request.experts)
    active = np.zeros((steps, LAYERS, EXPERTS), dtype=bool)
    for t, p in np.ndindex(steps, LAYERS):
        active[t, p, request.experts[t, p]] = True
    activation = active / request.experts.shape[2]
    _, rows = predictor.forecast_sequence(activation, 8)
    use = predictor.use_sequence(activation)
    prefill = request.prompt_length + warm_up
    resident, found, needed_in_all = set(), 0, 0
    for t, p in np.ndindex(steps, LAYERS):
        needed = {(p, int(e)) for e in request.experts[t, p]}
        if t >= prefill:
            found += len(needed & resident)
            needed_in_all += len(needed)
        while len(resident | needed) > slots:
            scores = {
                key: DEFINITIONS[name](Moment(active, rows, use, prefill, t, p, *key)) for key in resident - needed
            }
            resident.remove(min((score, key) for key, score in scores.items())[1])
        resident |= needed
    return found, needed_in_all
