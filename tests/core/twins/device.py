"""The device's side of a control region in plain Python: what the kernels do, one after the other."""

from __future__ import annotations

import numpy as np
from twins.slots import COMPUTE, EMPTY, FETCH, USED

from seqmoe.core.control import CONSUMED, LANDINGS, LENT, MISSES_BEGUN, MISSES_DONE, NOTHING, POSITION, TAKEN, TASKS


class Device:
    """Slot table and kernels over ``control``; ``host`` [keys, n] and ``pool`` [slots, n] are the experts' bytes."""

    def __init__(self, control, host, pool):
        self.control, self.words = control, control.words
        self.host, self.pool = host, pool
        self.state = [EMPTY] * len(pool)
        self.owner = [-1] * len(pool)
        self.tag = [-1] * len(pool)
        self.score = np.zeros(len(host))
        self.next_tag = 100
        self.landed = self.came_back_empty = self.was_resident = 0

    def find(self, key):
        slots = [slot for slot, owner in enumerate(self.owner) if owner == key]
        assert len(slots) <= 1, f"expert {key} is in slots {slots}"
        return slots[0] if slots else -1

    def lent_out(self):
        return self.state.count(FETCH)

    def arrive(self, position):
        self.words[POSITION] = position

    def victim(self, needed=()):
        if EMPTY in self.state:
            return self.state.index(EMPTY)
        used = [s for s in range(len(self.pool)) if self.state[s] == USED and self.owner[s] not in needed]
        return min(used, key=lambda slot: (self.score[self.owner[slot]], self.owner[slot]), default=-1)

    def land(self):
        """Process every landing so far; returns (slot, tag, key) of each."""
        processed = []
        while self.words[CONSUMED] < self.words[LANDINGS]:
            index = int(self.words[CONSUMED])
            slot, tag, key = (int(word) for word in self.control.landings[index % self.control.capacity])
            assert self.state[slot] == FETCH and self.tag[slot] == tag, "one landing for each lent slot, no other"
            if key == NOTHING:
                self.came_back_empty += 1
            elif self.find(key) >= 0:
                self.was_resident += 1
            else:
                self.landed += 1
            counts = key != NOTHING and self.find(key) < 0
            self.state[slot], self.owner[slot] = (COMPUTE, key) if counts else (EMPTY, -1)
            processed.append((slot, tag, key))
            self.words[CONSUMED] = index + 1
        return processed

    def lend(self, want, keep=0):
        """Lend until ``want`` slots are lent, or only ``keep`` are left that an event may take."""
        while self.lent_out() < min(want, len(self.pool) - keep):
            slot = self.victim()
            if slot < 0:
                return
            self.state[slot], self.owner[slot], self.tag[slot] = FETCH, -1, self.next_tag
            self.next_tag += 1
            index = int(self.words[LENT])
            self.control.lent[index % self.control.capacity] = slot, self.tag[slot]
            self.words[LENT] = index + 1

    def dispatch(self, tasks):
        """Tasks are (key, deadline, confidence); as many as the ring has room for. Returns those."""
        room = self.control.capacity - int(self.words[TASKS] - self.words[TAKEN])
        for key, deadline, confidence in tasks[:room]:
            self.write_task(key, deadline, confidence)
        return tasks[:room]

    def write_task(self, key, deadline, confidence):
        index = int(self.words[TASKS])
        bits = int(np.float32(confidence).view(np.uint32))
        self.control.tasks[index % self.control.capacity] = key, deadline, bits
        self.words[TASKS] = index + 1

    def event(self, needed):
        """Make the experts ``needed`` resident, compute, and release; returns how many were missing."""
        missing = [key for key in needed if self.find(key) < 0]
        if missing:
            self.words[MISSES_BEGUN] += 1
        for key in missing:
            slot = self.victim(needed)
            assert slot >= 0, "too many slots were lent"
            self.state[slot], self.owner[slot] = COMPUTE, key
            self.pool[slot] = self.host[key]
        if missing:
            self.words[MISSES_DONE] += 1
        for key in needed:
            self.state[self.find(key)] = COMPUTE
        self.check_bytes()
        for slot, state in enumerate(self.state):
            if state == COMPUTE:
                self.state[slot] = USED
        return len(missing)

    def check_bytes(self):
        held = [slot for slot, owner in enumerate(self.owner) if owner >= 0]
        assert (self.pool[held] == self.host[[self.owner[slot] for slot in held]]).all()
