"""Protects the slot table: every transition equals the plain-Python model's, and no invariant ever breaks."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from twins.slots import COMPUTE, EMPTY, FETCH, USED, IllegalTransition, SlotModel

from seqmoe.core import slots as core

LAYERS, EXPERTS = 3, 5
layers = st.integers(0, LAYERS - 1)
experts = st.integers(0, EXPERTS - 1)
scores = st.sampled_from([-1.0, 0.0, 0.25, 1.0])


class TableAgainstModel(RuleBasedStateMachine):
    """Any sequence of calls, legal or not."""

    @initialize(count=st.integers(1, 8), spare=st.integers(0, 3))
    def start(self, count, spare):
        self.count = count
        self.limit = max(0, count - spare)
        self.table = core.SlotTable(LAYERS, EXPERTS, count, fetch_limit=self.limit)
        everyone = [(layer, expert) for layer in range(LAYERS) for expert in range(EXPERTS)]
        self.model = SlotModel(count, self.limit, score=dict.fromkeys(everyone, 0.0))
        self.tag = 0
        self.given = [(0, 0)]

    def both(self, name, model_arguments, table_arguments):
        try:
            expected = getattr(self.model, name)(*model_arguments)
        except IllegalTransition:
            with pytest.raises(RuntimeError):
                getattr(self.table, name)(*table_arguments)
            return None
        assert getattr(self.table, name)(*table_arguments) == expected
        return expected

    @rule(layer=layers, expert=experts)
    def reserve(self, layer, expert):
        self.tag += 1
        slot = self.both("reserve", ((layer, expert), self.tag), (layer, expert, self.tag))
        if slot is not None and slot >= 0:
            self.given.append((slot, self.tag))

    @rule(layer=layers, expert=experts)
    def load(self, layer, expert):
        self.both("load", ((layer, expert),), (layer, expert))

    @rule(data=st.data(), ok=st.booleans())
    def land_any_tag_ever_given(self, data, ok):
        slot, tag = data.draw(st.sampled_from(self.given))
        self.both("land", (slot, tag, ok), (slot, tag, ok))

    @rule(data=st.data())
    def cancel_any_tag_ever_given(self, data):
        slot, tag = data.draw(st.sampled_from(self.given))
        self.both("cancel", (slot, tag), (slot, tag))

    @rule(slot=st.integers(0, 7))
    def release(self, slot):
        self.both("release", (slot % self.count,), (slot % self.count,))

    @rule(slot=st.integers(0, 7))
    def evict(self, slot):
        self.both("evict", (slot % self.count,), (slot % self.count,))

    @rule(layer=layers)
    def release_layer(self, layer):
        self.both("release_layer", (layer,), (layer,))

    @rule(layer=layers, wanted=st.sets(experts, max_size=EXPERTS))
    def begin_event(self, layer, wanted):
        self.table.begin_event(layer, np.array(sorted(wanted), dtype=np.int32))
        self.model.needed = {(layer, expert) for expert in wanted}

    @rule(layer=layers, expert=experts, score=scores)
    def change_score(self, layer, expert, score):
        self.table.score[layer, expert] = score
        self.model.score[layer, expert] = score

    @invariant()
    def arrays_equal_the_model(self):
        states = [slot.state for slot in self.model.slots]
        owners = [-1 if slot.owner is None else slot.owner[0] * EXPERTS + slot.owner[1] for slot in self.model.slots]
        assert self.table.state.tolist() == states
        assert self.table.owner.tolist() == owners
        assert self.table.tag.tolist() == [-1 if slot.tag is None else slot.tag for slot in self.model.slots]
        everyone = [[self.model.find((layer, expert)) for expert in range(EXPERTS)] for layer in range(LAYERS)]
        assert self.table.slot_of.tolist() == everyone

    @invariant()
    def no_expert_in_two_slots(self):
        owners = self.table.owner[self.table.owner >= 0]
        assert len(set(owners.tolist())) == len(owners)
        assert ((self.table.owner >= 0) == (self.table.state != EMPTY)).all()
        assert (self.table.state == FETCH).sum() <= self.limit


TestTableAgainstModel = TableAgainstModel.TestCase
TestTableAgainstModel.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


def filled(slots=4, **options):
    table = core.SlotTable(2, 8, slots, **options)
    for expert in range(slots):
        table.load(0, expert)
    return table


def test_states_have_the_values_that_the_layout_promises():
    assert (core.EMPTY, core.USED, core.FETCH, core.COMPUTE) == (EMPTY, USED, FETCH, COMPUTE) == (0, 1, 2, 3)
    table = core.SlotTable(2, 8, 4)
    dtypes = [array.dtype for array in (table.state, table.owner, table.tag, table.slot_of, table.score)]
    assert dtypes == [np.uint8, np.int32, np.int64, np.int32, np.float32]


def test_fetch_and_compute_are_never_evicted():
    table = filled()
    assert table.load(1, 0) == -1
    table.release(2)
    assert table.reserve(1, 0, 7) == 2
    assert table.load(1, 1) == -1
    assert table.owner.tolist() == [0, 1, 8, 3]


def test_needed_is_never_evicted_until_the_next_event():
    table = filled()
    table.release_layer(0)
    table.score[0, :4] = [0.0, 1.0, 2.0, 3.0]
    table.begin_event(0, np.array([0, 1], dtype=np.int32))
    assert table.reserve(1, 0, 1) == 2
    table.begin_event(1, np.array([], dtype=np.int32))
    assert table.reserve(1, 1, 2) == 0


def test_ties_go_to_the_lower_key():
    table = core.SlotTable(1, 8, 3)
    for expert in (6, 2, 4):
        table.load(0, expert)
    table.release_layer(0)
    assert table.load(0, 7) == 1, "expert 2 goes first"


def test_nan_is_the_lowest_score():
    table = filled()
    table.release_layer(0)
    table.score[0, 3] = np.nan
    table.score[0, 0] = -np.inf
    assert [table.load(1, 0), table.load(1, 1)] == [0, 3]


def test_a_stale_tag_changes_nothing():
    table = core.SlotTable(1, 8, 2)
    slot = table.reserve(0, 0, 5)
    assert table.cancel(slot, 5)
    assert table.reserve(0, 1, 6) == slot
    assert not table.land(slot, 5)
    assert not table.cancel(slot, 5)
    assert table.state[slot] == FETCH
    assert table.land(slot, 6)
    assert not table.land(slot, 6)
    assert table.state[slot] == COMPUTE


def test_views_alias_the_table_and_keep_it_alive():
    table = core.SlotTable(2, 8, 4)
    state, score = table.state, table.score
    table.load(0, 3)
    assert state[0] == COMPUTE
    score[:] = 2.0
    assert (table.score == 2.0).all()
    for view in (table.state, table.owner, table.tag, table.slot_of):
        assert not view.flags.writeable
    del table
    gc.collect()
    assert state[0] == COMPUTE


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda t: t.load(2, 0), IndexError),
        (lambda t: t.load(0, 8), IndexError),
        (lambda t: t.land(4, 0), IndexError),
        (lambda t: t.release_layer(-1), IndexError),
        (lambda t: t.reserve(1, 0, -1), ValueError),
        (lambda t: t.begin_event(0, np.array([1, 1], dtype=np.int32)), ValueError),
        (lambda t: core.SlotTable(0, 8, 4), ValueError),
        (lambda t: core.SlotTable(2, 8, 0), ValueError),
        (lambda t: core.SlotTable(2, 8, 4, fetch_limit=-1), ValueError),
        (lambda t: core.SlotTable(2**20, 2**20, 4), ValueError),
    ],
)
def test_wrong_arguments_are_refused(call, error):
    table = core.SlotTable(2, 8, 4)
    with pytest.raises(error):
        call(table)
    assert (table.state == EMPTY).all()
