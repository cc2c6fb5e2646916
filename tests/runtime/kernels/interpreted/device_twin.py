"""The slot table's twin, and what a device does otherwise: slots are lent without an owner, misses are placed."""

from __future__ import annotations

from dataclasses import dataclass

from twins.slots import COMPUTE, FETCH, USED, Slot, SlotModel


@dataclass
class DeviceModel(SlotModel):
    """`twins.slots.SlotModel` decides on every victim; experts are (layer, expert)."""

    tag: int = 0
    given_up: int = 0

    def lend(self, want):
        """Slots that are now lent, in the order they were chosen."""
        lent = []
        while len(self.in_state(FETCH)) < want and self.victim() >= 0:
            number = self.victim()
            self.slots[number] = Slot(FETCH, None, self.tag)
            lent.append((number, self.tag))
            self.tag += 1
        return lent

    def arrive(self, number, tag, expert):
        """What became of a landing; ``expert`` None brought nothing."""
        slot = self.slots[number]
        if slot.state != FETCH or slot.tag != tag:
            return "STALE"
        if expert is None or self.find(expert) >= 0:
            self.slots[number] = Slot()
            return "BARREN" if expert is None else "LATE"
        self.slots[number] = Slot(COMPUTE, expert)
        return "LANDED"

    def plan(self, layer, experts):
        """Slots of the experts, and the misses as (expert, slot); what cannot be placed has slot -1."""
        self.needed = {(layer, expert) for expert in experts}
        misses = []
        for expert in sorted(self.needed):
            number = self.find(expert)
            if number >= 0:
                self.slots[number] = Slot(COMPUTE, expert)
        for expert in sorted(self.needed):
            if self.find(expert) < 0:
                if self.victim() < 0:
                    self.give_up_one()
                misses.append((expert, self.load(expert)))
        return {expert: self.find((layer, expert)) for expert in experts}, misses

    def give_up_one(self):
        """The landed prefetch of the lowest score may be evicted after all."""
        spare = [number for number in self.in_state(COMPUTE) if self.slots[number].owner not in self.needed]
        if spare:
            worst = min(spare, key=lambda number: (self.score[self.slots[number].owner], self.slots[number].owner))
            self.slots[worst].state = USED
            self.given_up += 1
