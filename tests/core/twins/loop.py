"""The event loop as its specification: a dictionary of residents, lists and sorting, one event at a time."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from twins import schedule

USED, FETCH, COMPUTE = 1, 2, 3


@dataclass(eq=False)
class Task:
    expert: tuple[int, int]
    deadline: int
    confidence: float
    number: int
    counts: Counter


class Loop:
    def __init__(self, layers, experts, slots, rules=None, sequential=False, bands=()):
        self.layers, self.experts, self.slots = layers, experts, slots
        self.rules, self.sequential, self.bands = rules, sequential, bands
        self.score = {(layer, expert): 0.0 for layer in range(layers) for expert in range(experts)}
        self.state = {}  # of residents
        self.unused = {}  # prefetched and not needed since: where each was sent
        self.sent = {}
        self.needed = set()
        self.queue, self.landing = [], []
        self.flying, self.remaining = None, 0.0
        self.largest = self.created = 0
        self.position = self.seen = None
        self.idle = False
        self.counts, self.uncounted = Counter(), Counter()
        self.now = self.counts
        if rules:
            self.unlimited = rules.link > layers * experts
            self.average, self.spent = (layers * experts if self.unlimited else rules.link), 0

    def event(
        self,
        step,
        layer,
        experts,
        *,
        count=True,
        demand=None,
        accessed=None,
        used=None,
        forecast=None,
        ranges=(),
        tasks=None,
    ):
        """``demand``, ``accessed`` [n], ``used`` [experts], ``forecast`` [layers, experts], ``tasks`` as tuples."""
        self.now = self.counts if count else self.uncounted
        self.demand = dict(zip([(layer, expert) for expert in experts], demand or [1] * len(experts), strict=True))
        self.position, self.needed = step * self.layers + layer, set()
        self.largest = max(self.largest, len(experts))
        self.drop([task for task in self.queue if task.deadline <= self.position])
        self.land()
        for first in range(0, len(experts), 1 if self.sequential else max(len(experts), 1)):
            group = experts[first : first + 1] if self.sequential else experts
            self.need([(layer, expert) for expert in group])
            for index, expert in enumerate(group, first):
                if accessed is not None:
                    self.score[layer, expert] = accessed[index]
                elif used is not None and self.sequential:
                    self.score[layer, expert] = used[expert]
                if self.sequential and self.state[layer, expert] == COMPUTE:
                    self.state[layer, expert] = USED
        if used is not None:
            self.score |= {(layer, expert): used[expert] for expert in range(self.experts)}
        for first, last in ranges:
            if layer == last - 1:
                self.trigger(step, first, last, forecast, tasks)
        for expert, state in self.state.items():
            if expert[0] == layer and state == COMPUTE:
                self.state[expert] = USED
        if self.rules:
            self.send()
        self.check()

    def need(self, group):
        self.needed = set(group)
        self.drop([task for task in self.queue if task.expert in self.needed])
        late = [expert for expert in group if self.state.get(expert) == FETCH]
        missing = [expert for expert in group if expert not in self.state]
        hits = [expert for expert in group if expert not in late and expert not in missing]
        self.now.update(assigned=sum(self.demand[e] for e in group), assigned_hits=sum(self.demand[e] for e in hits))
        for name, experts in {"hits": hits, "needed": group, "late": late, "loads": missing}.items():
            for expert in experts:
                self.add(name, expert)
        self.use(hits)
        for _ in late:
            self.arrive()
        self.use(late)
        for expert in missing:
            while not self.has_room():
                self.make_room()
            self.take(expert, COMPUTE)

    def use(self, experts):
        for expert in self.unused.keys() & set(experts):
            self.add("used", expert, *self.unused.pop(expert))

    def band(self):
        return sum(first <= self.position // self.layers for first in self.bands) - 1

    def add(self, name, expert, counts=None, band=None):
        counts = self.now if counts is None else counts
        band = self.band() if band is None else band
        counts.update([name, ("layer", expert[0], name), ("band", band, name)])

    def by_score(self, experts):
        def order(expert):
            score = self.score[expert]
            return -math.inf if math.isnan(score) else score, expert

        return sorted(experts, key=order)

    def evictable(self):
        return self.by_score(e for e, state in self.state.items() if state == USED and e not in self.needed)

    def has_room(self):
        return len(self.state) < self.slots or bool(self.evictable())

    def take(self, expert, state):
        assert expert not in self.state
        if len(self.state) == self.slots:
            victim = self.evictable()[0]
            del self.state[victim]
            self.now["evictions"] += 1
            if victim in self.unused:
                self.add("wasted", victim, *self.unused.pop(victim))
        self.state[expert] = state

    def make_room(self):
        if self.rules.reserve == "creation" and self.queue:
            return self.drop([max(self.queue, key=lambda task: task.number)])
        spare = [e for e in self.unused if self.state[e] == COMPUTE and e not in self.needed]
        if spare:
            self.state[self.by_score(spare)[0]] = USED
        else:
            self.arrive()

    def drop(self, tasks):
        for task in tasks:
            self.queue.remove(task)
            if self.rules.reserve == "creation":
                del self.state[task.expert]
            task.counts["dropped"] += 1

    def arrive(self):
        self.landing.append(self.flying)
        self.flying = None
        self.land()

    def land(self):
        for task in self.landing:
            assert self.state[task.expert] == FETCH
            self.state[task.expert] = COMPUTE if task.deadline >= self.position else USED
            self.unused[task.expert] = self.sent.pop(task.expert)
            self.unused[task.expert][0]["landed"] += 1
        self.landing = []

    def fetch_allowed(self):
        limit = self.rules.fetch_limit
        limit = max(self.slots - self.largest, 0) if limit is None else limit
        return list(self.state.values()).count(FETCH) < limit

    def trigger(self, step, first, last, forecast, tasks):
        if forecast is not None:
            for layer in range(first, last):
                self.score |= {(layer, expert): forecast[layer][expert] for expert in range(self.experts)}
        for layer, expert, confidence in sorted(tasks or [], key=lambda task: (-task[2], task[0], task[1])):
            deadline = (step + 1) * self.layers + layer
            if not first <= layer < last or deadline <= self.position + 1:
                continue
            if (layer, expert) in self.state or any(task.expert == (layer, expert) for task in self.queue):
                continue
            if self.rules.reserve == "creation":
                if not self.has_room() or not self.fetch_allowed():
                    break
                self.take((layer, expert), FETCH)
            self.queue.append(Task((layer, expert), deadline, confidence, self.created, self.now))
            self.created += 1
            self.now["created"] += 1

    def send(self):
        left = self.rules.link
        while left > 0:
            if self.flying:
                if self.remaining > left:
                    self.remaining -= left
                    return
                left -= self.remaining
                self.landing.append(self.flying)
                self.flying = None
                continue
            self.learn()
            task = self.select()
            self.idle = task is None or (self.rules.reserve == "selection" and not self.reserve(task))
            if self.idle:
                return
            self.queue.remove(task)
            self.flying, self.remaining = task, 1.0
            self.spent += 1
            self.sent[task.expert] = self.now, self.band()
            self.add("sent", task.expert)

    def reserve(self, task):
        if not self.fetch_allowed() or not self.has_room():
            return False
        self.take(task.expert, FETCH)
        return True

    def learn(self):
        if self.seen is not None and self.position > self.seen and not self.unlimited:
            layers = self.position - self.seen
            left = self.average * layers - self.spent
            if not self.idle:
                self.average -= (1 - (1 - self.rules.alpha) ** layers) * left / layers
            self.spent = 0
        self.seen = self.position

    def select(self):
        self.queue.sort(key=lambda task: task.expert)
        deadline = [task.deadline for task in self.queue]
        confidence = [task.confidence for task in self.queue]
        if self.rules.order == "matroid":
            _, index = schedule.select(deadline, confidence, self.position, self.average - self.spent, self.average)
        else:
            index = schedule.first_task(self.rules.order, deadline, confidence, self.position, self.layers)
        return self.queue[index] if index >= 0 else None

    def check(self):
        assert len(self.state) <= self.slots
        assert self.needed <= self.state.keys()
