"""Protects the device's slot table: over long random decoding every kernel does what the host's twin does."""

from __future__ import annotations

import random
from collections import Counter as Tally

import pytest
import torch
from device_twin import DeviceModel
from twins.slots import COMPUTE, FETCH

from seqmoe.core.control import CAPACITY, CONSUMED, LANDINGS, LENT, POSITION, Control, control_words
from seqmoe.runtime.kernels import land, lend, plan, release_layer
from seqmoe.runtime.kernels.table import Counter, DeviceTable, Misses

RING = 16
POISON = -77


class Pair:
    """A table on the device and its twin, and a worker that posts anything."""

    def __init__(self, layers, experts, slots, seed):
        self.random = random.Random(seed)
        self.layers, self.experts = layers, experts
        self.table = DeviceTable.empty(layers, experts, slots)
        everyone = [(layer, expert) for layer in range(layers) for expert in range(experts)]
        self.model = DeviceModel(slots, slots, score=dict.fromkeys(everyone, 0.0))
        self.words = torch.zeros(control_words(RING), dtype=torch.int64)
        self.control = Control.prepare(self.words.numpy(), RING)
        self.given, self.flying = [(0, 0)], []
        self.tally = Tally()
        self.landed = 0

    def change_scores(self):
        for expert in self.model.score:
            if self.random.random() < 0.3:
                self.model.score[expert] = self.random.choice([-1.5, -1.0, 0.0, 0.25, 1.0, 7.0])
                self.table.score[expert] = self.model.score[expert]

    def post(self):
        """What a worker brings: mostly what it was lent, now and then nonsense."""
        self.random.shuffle(self.flying)
        landings = [self.flying.pop() for _ in range(self.random.randint(0, len(self.flying)))]
        if self.random.random() < 0.2:
            landings.append(self.random.choice(self.given))
        for slot, tag in landings:
            expert = (self.random.randrange(self.layers), self.random.randrange(self.experts))
            expert = None if self.random.random() < 0.2 else expert
            if expert and landings and self.random.random() < 0.3 and self.model.needed:
                expert = self.random.choice(sorted(self.model.needed))
            key = -1 if expert is None else expert[0] * self.experts + expert[1]
            self.control.landings[self.landed % RING] = slot, tag, key
            self.landed += 1
            self.tally[self.model.arrive(slot, tag, expert)] += 1
        self.control.words[LANDINGS] = self.landed

    def event(self, layer, tokens, choices):
        rows = [self.random.sample(range(self.experts), choices) for _ in range(tokens)]
        chosen = torch.tensor(rows, dtype=self.random.choice([torch.int32, torch.int64]))
        ids, misses = torch.full(chosen.shape, POISON, dtype=torch.int32), Misses.of(chosen.numel())
        misses.key.fill_(POISON)
        needed = sorted({expert for row in rows for expert in row})
        resident = [expert for expert in needed if self.model.find((layer, expert)) >= 0]
        plan.launch(self.table, layer, chosen, ids, misses)
        places, missing = self.model.plan(layer, needed)
        assert ids.tolist() == [[places[expert] for expert in row] for row in rows]
        count = int(misses.count)
        placed = [(expert[0] * self.experts + expert[1], slot) for expert, slot in missing if slot >= 0]
        assert list(zip(misses.key[:count].tolist(), misses.slot[:count].tolist(), strict=True)) == placed
        self.tally["EVENTS"] += 1
        self.tally["HITS"] += len(resident)
        self.tally["MISSES"] += len(missing)
        self.tally["UNPLACED"] += len(missing) - len(placed)

    def lend(self, want):
        before = self.model.tag
        lend.launch(self.words, self.table, RING, want)
        lent = self.model.lend(want)
        assert int(self.words[LENT]) == self.model.tag
        assert [tuple(self.control.lent[tag % RING]) for tag in range(before, self.model.tag)] == lent
        self.given += lent
        self.flying += lent

    def compare(self):
        slots = self.model.slots
        owners = [-1 if slot.owner is None else slot.owner[0] * self.experts + slot.owner[1] for slot in slots]
        assert self.table.state.tolist() == [slot.state for slot in slots]
        assert self.table.owner.tolist() == owners
        assert self.table.tag.tolist() == [-1 if slot.tag is None else slot.tag for slot in slots]
        everyone = [
            [self.model.find((layer, expert)) for expert in range(self.experts)] for layer in range(self.layers)
        ]
        assert self.table.slot_of.tolist() == everyone
        counters = self.table.counters.tolist()
        for name, count in self.tally.items():
            assert counters[Counter[name]] == count, name


@pytest.mark.parametrize(
    ("layers", "experts", "slots", "tokens", "choices", "want", "steps", "happens"),
    [
        (3, 6, 10, 1, 2, 3, 10, ("HITS", "LANDED", "LATE", "BARREN", "STALE")),
        (6, 8, 8, 3, 2, 5, 5, ("HITS", "LANDED", "GIVEN_UP", "UNPLACED")),
        (3, 7, 5, 1, 4, 2, 5, ("MISSES", "LANDED")),
        (4, 5, 20, 3, 2, 1, 6, ("HITS", "LANDED")),
    ],
)
def test_long_decoding_equals_the_twin(layers, experts, slots, tokens, choices, want, steps, happens):
    pair = Pair(layers, experts, slots, seed=slots)
    for step in range(steps):
        for layer in range(layers):
            pair.post()
            land.launch(pair.words, pair.table, RING)
            position = step * layers + layer
            assert int(pair.words[POSITION]) == int(pair.table.progress[POSITION]) == position
            assert int(pair.words[CONSUMED]) == pair.landed
            pair.compare()
            pair.change_scores()
            pair.event(layer, tokens, choices)
            pair.compare()
            pair.lend(pair.random.randint(0, want))
            pair.compare()
            release_layer.launch(pair.table, layer)
            pair.model.release_layer(layer)
            pair.compare()
    counters = dict(zip((each.name for each in Counter), pair.table.counters.tolist(), strict=True))
    assert counters["LENT"] == pair.model.tag
    assert counters["GIVEN_UP"] == pair.model.given_up
    assert {name: counters[name] for name in happens if not counters[name]} == {}
    assert int(pair.words[CAPACITY]) == RING


def test_landings_beyond_one_warp_wait_for_the_next_layer():
    ring, slots = 64, 48
    table, words = DeviceTable.empty(2, 40, slots), torch.zeros(control_words(ring), dtype=torch.int64)
    control = Control.prepare(words.numpy(), ring)
    lend.launch(words, table, ring, 40)
    assert control.lent[:40].tolist() == [[slot, slot] for slot in range(40)]
    control.landings[:40] = [[slot, slot, slot] for slot in range(40)]
    words[LANDINGS] = 40
    for consumed in (land.LANES, 40):
        land.launch(words, table, ring)
        assert int(words[CONSUMED]) == consumed
        assert (table.state[:consumed] == COMPUTE).all()
        assert (table.state[consumed:40] == FETCH).all()


def test_of_two_landings_of_an_expert_the_second_is_late():
    table, words = DeviceTable.empty(1, 4, 4), torch.zeros(control_words(RING), dtype=torch.int64)
    control = Control.prepare(words.numpy(), RING)
    lend.launch(words, table, RING, 3)
    control.landings[:3] = [[0, 0, 2], [1, 1, 2], [0, 0, 3]]
    words[LANDINGS] = 3
    land.launch(words, table, RING)
    assert table.state.tolist() == [COMPUTE, 0, FETCH, 0]
    assert table.slot_of.tolist() == [[-1, -1, 0, -1]]
    assert [int(table.counters[each]) for each in (Counter.LANDED, Counter.LATE, Counter.STALE)] == [1, 1, 1]


def test_scores_without_an_order_are_ordered_as_on_the_host():
    table, misses, ids = DeviceTable.empty(1, 8, 4), Misses.of(1), torch.empty((1, 1), dtype=torch.int32)
    for expert in range(4):
        plan.launch(table, 0, torch.tensor([[expert]]), ids, misses)
    release_layer.launch(table, 0)
    table.score[0, :4] = torch.tensor([0.0, -0.0, float("nan"), float("-inf")])
    evicted = []
    for expert in range(4, 7):
        plan.launch(table, 0, torch.tensor([[expert]]), ids, misses)
        evicted.append(int(ids))
    assert evicted == [2, 3, 0], "NaN equals -inf, -0 equals 0: ties go to the lower key"


def test_a_miss_without_a_slot_is_told():
    table, words = DeviceTable.empty(1, 8, 4), torch.zeros(control_words(RING), dtype=torch.int64)
    lend.launch(words, table, RING, 3)
    ids, misses = torch.full((1, 3), POISON, dtype=torch.int32), Misses.of(3)
    plan.launch(table, 0, torch.tensor([[5, 1, 7]]), ids, misses)
    assert ids.tolist() == [[-1, 3, -1]]
    assert [int(misses.count), int(misses.key[0]), int(misses.slot[0])] == [1, 1, 3]
    assert int(table.counters[Counter.UNPLACED]) == 2


@pytest.mark.parametrize("want", [-1, 4, RING + 1])
def test_more_is_not_lent_than_can_be(want):
    table, words = DeviceTable.empty(1, 8, 4), torch.zeros(control_words(RING), dtype=torch.int64)
    with pytest.raises(ValueError, match="want"):
        lend.launch(words, table, RING, want)
