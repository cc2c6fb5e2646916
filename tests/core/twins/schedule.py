"""Prefetch scheduling as its specification, and the exhaustive search that the greedy must equal."""

from __future__ import annotations

import math
from itertools import combinations


def rank(task, deadline, confidence):
    """Ascending from best to worst."""
    return (-confidence[task], deadline[task], task)


def capacity(deadline, position, current, average):
    return math.floor(max(1.0, current) + average * (deadline - position - 1))


def meets_deadlines(tasks, deadline, capacity_at):
    return all(
        sum(deadline[other] <= deadline[task] for other in tasks) <= capacity_at(deadline[task]) for task in tasks
    )


def greedy(deadline, confidence, capacity_at):
    """Best first, keep a task if the set still meets every deadline: the textbook matroid greedy, not Algorithm 1."""
    kept = []
    for task in sorted(range(len(deadline)), key=lambda task: rank(task, deadline, confidence)):
        if meets_deadlines([*kept, task], deadline, capacity_at):
            kept.append(task)
    return sorted(kept)


def best_total(deadline, confidence, capacity_at):
    """The highest total confidence over all subsets that meet every deadline."""
    tasks = range(len(deadline))
    return max(
        sum(confidence[task] for task in subset)
        for size in range(len(deadline) + 1)
        for subset in combinations(tasks, size)
        if meets_deadlines(subset, deadline, capacity_at)
    )


def select(deadline, confidence, position, current, average):
    candidates = [task for task in range(len(deadline)) if deadline[task] > position + 1]
    kept = greedy(
        [deadline[task] for task in candidates],
        [confidence[task] for task in candidates],
        lambda due: capacity(due, position, current, average),
    )
    chosen = [candidates[index] for index in kept]
    next_task = min(chosen, key=lambda task: (deadline[task], -confidence[task], task), default=-1)
    return sorted(chosen), next_task


def first_task(order, deadline, confidence, position, layers, earliest=None):
    """What each of the rivals' orders sends next, -1 for nothing."""
    rules = {
        "infinity": lambda task: -confidence[task] * (1 - (deadline[task] - position) / (layers + 1)),
        "promoe": lambda task: deadline[task],
        "confidence": lambda task: -confidence[task],
        "edf": lambda task: (deadline[task], task),
    }
    earliest = position + 2 if earliest is None else earliest
    candidates = [task for task in range(len(deadline)) if deadline[task] >= earliest]
    return min(candidates, key=lambda task: (rules[order](task), rank(task, deadline, confidence)), default=-1)
