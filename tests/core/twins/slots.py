"""The slot table as its specification: dictionaries and sorting, no arrays."""

from __future__ import annotations

from dataclasses import dataclass, field

EMPTY, USED, FETCH, COMPUTE = range(4)


class IllegalTransition(RuntimeError):
    """A transition that the states do not allow."""


@dataclass
class Slot:
    state: int = EMPTY
    owner: tuple[int, int] | None = None
    tag: int | None = None


@dataclass
class SlotModel:
    count: int
    fetch_limit: int
    score: dict[tuple[int, int], float] = field(default_factory=dict)
    needed: set[tuple[int, int]] = field(default_factory=set)

    def __post_init__(self):
        self.slots = [Slot() for _ in range(self.count)]

    def find(self, expert):
        return next((number for number, slot in enumerate(self.slots) if slot.owner == expert), -1)

    def in_state(self, state):
        return [number for number, slot in enumerate(self.slots) if slot.state == state]

    def victim(self):
        if self.in_state(EMPTY):
            return self.in_state(EMPTY)[0]
        evictable = [number for number in self.in_state(USED) if self.slots[number].owner not in self.needed]
        by_score = sorted(
            evictable, key=lambda number: (self.score[self.slots[number].owner], self.slots[number].owner)
        )
        return by_score[0] if by_score else -1

    def _occupy(self, expert, state, tag=None):
        if self.find(expert) >= 0:
            raise IllegalTransition
        number = self.victim()
        if number >= 0:
            self.slots[number] = Slot(state, expert, tag)
        return number

    def reserve(self, expert, tag):
        if self.find(expert) >= 0:
            raise IllegalTransition
        if len(self.in_state(FETCH)) >= self.fetch_limit:
            return -1
        return self._occupy(expert, FETCH, tag)

    def load(self, expert):
        return self._occupy(expert, COMPUTE)

    def land(self, number, tag, ok):
        slot = self.slots[number]
        if slot.state != FETCH or slot.tag != tag:
            return False
        self.slots[number] = Slot(COMPUTE, slot.owner) if ok else Slot()
        return True

    def cancel(self, number, tag):
        return self.land(number, tag, ok=False)

    def _move(self, number, before, after):
        if self.slots[number].state != before:
            raise IllegalTransition
        self.slots[number] = after

    def release(self, number):
        self._move(number, COMPUTE, Slot(USED, self.slots[number].owner))

    def evict(self, number):
        self._move(number, USED, Slot())

    def release_layer(self, layer):
        for number in self.in_state(COMPUTE):
            if self.slots[number].owner[0] == layer:
                self.release(number)
