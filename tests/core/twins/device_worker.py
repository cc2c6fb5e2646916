"""The device's worker as its specification: which tasks it keeps, and which it sends into a lent slot."""

from __future__ import annotations

from dataclasses import dataclass, field

from twins.schedule import first_task, select

FARTHEST = 1 << 20


@dataclass
class WorkerTwin:
    order: str
    layers: int
    keys: int
    average: float
    position: int = 0
    seen: int | None = None
    spent: int = 0
    queue: dict[int, tuple[int, float]] = field(default_factory=dict)
    unprocessed: set[int] = field(default_factory=set)
    overdue: int = 0
    duplicate: int = 0
    refused: int = 0

    def arrive(self, position):
        if position < self.position:
            self.forget()
        gone = [key for key, (deadline, _) in self.queue.items() if deadline <= position]
        for key in gone:
            del self.queue[key]
        self.overdue += len(gone)
        self.position = position

    def forget(self):
        self.overdue += len(self.queue)
        self.queue.clear()
        self.seen = None

    def read(self, key, deadline, confidence):
        if not 0 <= key < self.keys or confidence != confidence or deadline - self.position > FARTHEST:
            self.refused += 1
        elif deadline <= self.position + 1:
            self.overdue += 1
        elif key in self.queue or key in self.unprocessed:
            self.duplicate += 1
        else:
            self.queue[key] = (deadline, confidence)

    def passed(self):
        """The worker looks at the position, having had nothing to send."""
        if self.seen is not None and self.position > self.seen:
            self.spent = 0
        self.seen = self.position

    def send(self):
        """The key that goes next, which leaves the queue; None for none."""
        keys = sorted(self.queue)
        deadline = [self.queue[key][0] for key in keys]
        confidence = [self.queue[key][1] for key in keys]
        if self.order == "matroid":
            _, index = select(deadline, confidence, self.position, self.average - self.spent, self.average)
        else:
            index = first_task(self.order, deadline, confidence, self.position, self.layers)
        if index < 0:
            return None
        del self.queue[keys[index]]
        self.spent += 1
        return keys[index]
