"""The thread that computes: it takes requests from a bounded queue into the running batch, and out of it again."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from dataclasses import dataclass

from seqmoe.runtime.batching import BatchSession, Member
from seqmoe.runtime.session import Session
from seqmoe.runtime.text import StoppedText
from seqmoe.serve.errors import ApiError, draining, failed, full, timed_out
from seqmoe.serve.job import Ended, Failed, Job, Piece
from seqmoe.serve.limits import Limits
from seqmoe.serve.metrics import Metrics
from seqmoe.serve.snapshot import Snapshot, Throughput, take_snapshot

_log = logging.getLogger("seqmoe.serve")
_PUBLISH_SECONDS = 0.2


@dataclass(slots=True, eq=False)
class _Running:
    job: Job
    member: Member
    text: StoppedText
    last: float


class Scheduler:
    """Serves jobs with one session, which belongs to its thread from `start` to `close`.

    Between two steps at most one prompt is computed, so that who is being answered waits for no more than that.
    """

    def __init__(self, session: Session, limits: Limits) -> None:
        self.limits = limits
        self.metrics = Metrics(lambda: self.snapshot)
        self.snapshot = Snapshot()
        self._session = session
        self._batch = BatchSession(session)
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._entering: Job | None = None
        self._running: list[_Running] = []
        self._draining = self._closed = False
        self._throughput = Throughput()
        self._published = -math.inf
        self._typical_seconds = 1.0
        self.broken: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="seqmoe-inference", daemon=True)
        self._publish()

    def start(self) -> None:
        """Begin to compute."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue a job; `ApiError` where there is no room or the server ends."""
        with self._changed:
            if self._draining or self._closed:
                self.metrics.requests.labels("refused_draining").inc()
                raise draining()
            if len(self._waiting) + self._taken >= self.limits.batch + self.limits.queue:
                self.metrics.requests.labels("refused_full").inc()
                raise full(self._wait_seconds())
            self._waiting.append(job)
            self._changed.notify()

    def cancel(self, job: Job) -> None:
        """Nobody waits for this job any more. One that has ended is left alone."""
        with self._changed:
            job.cancelled = True
            self._changed.notify()

    def drain(self) -> None:
        """Finish what is in the batch, refuse what waits and whatever comes."""
        with self._changed:
            self._draining = True
            for job in self._waiting:
                self._end(job, draining())
            self._waiting.clear()
            self._changed.notify()

    @property
    def draining(self) -> bool:
        """Whether nothing new is taken any more."""
        return self._draining

    @property
    def idle(self) -> bool:
        """Whether nothing is left to be done."""
        with self._changed:
            return not self._waiting and not self._taken

    @property
    def _taken(self) -> int:
        """Places of the batch that are not free."""
        return len(self._running) + (self._entering is not None)

    def abort(self) -> None:
        """Give up what runs, after the step that is being computed."""
        with self._changed:
            self._draining = self._closed = True
            self._changed.notify()

    def close(self) -> None:
        """End the thread, and with it what still runs."""
        self.abort()
        self._thread.join()

    def _run(self) -> None:
        while self._wait():
            try:
                self._turn()
            except Exception as error:
                self._recover(error)
            self._publish()
        for job in [*self._waiting, *(each.job for each in self._running)]:
            self._end(job, draining())
        self._waiting.clear()
        self._running = []

    def _wait(self) -> bool:
        with self._changed:
            # The rate on the page falls to zero while nothing happens.
            while not (self._waiting or self._running or self._closed):
                self._changed.wait(1.0)
                self._publish()
            return not self._closed

    def _turn(self) -> None:
        self._sweep()
        job = self._next()
        if job is not None:
            self._admit(job)
        present = {id(member) for member in self._batch.step()}
        now = time.perf_counter()
        stepped = [running for running in self._running if id(running.member) in present]
        for running in stepped:
            self.metrics.itl.observe(now - running.last)
            self._advance(running, now)
        if stepped:
            self._count(now, len(stepped))

    def _next(self) -> Job | None:
        with self._changed:
            room = len(self._running) < self.limits.batch
            self._entering = self._waiting.popleft() if self._waiting and room else None
            return self._entering

    def _admit(self, job: Job) -> None:
        began = time.perf_counter()
        self.metrics.waited.observe(began - job.arrived)
        try:
            member = self._batch.admit(job.prompt, job.tokens, job.sampling)
        except Exception:
            self._end(job, failed())
            self._entering = None
            raise
        now = time.perf_counter()
        running = _Running(job, member, StoppedText(self._session.tokenizer, job.stops), now)
        with self._changed:
            self._running.append(running)
            self._entering = None
        self.metrics.prompt_tokens.inc(len(job.prompt))
        self.metrics.ttft.observe(now - job.arrived)
        self._count(now, 1)
        self._advance(running, now)

    def _advance(self, running: _Running, now: float) -> None:
        """Give out what a step has added, perhaps the last of it."""
        member, text, running.last = running.member, running.text, now
        piece = "" if member.ended == "stop" else text.add(member.tokens[-1])
        if member.ended is not None:
            piece += text.rest()
        if piece:
            running.job.put(Piece(piece, member.steps))
        if member.ended is None and not text.stopped:
            return
        self._leave(running)
        reason = "stop" if text.stopped else str(member.ended)
        lasted = now - running.job.arrived
        self.metrics.lasted.observe(lasted)
        self._typical_seconds += 0.1 * (lasted - self._typical_seconds)
        self.metrics.requests.labels(reason).inc()
        running.job.put(Ended(reason, member.steps))

    def _sweep(self) -> None:
        """Let go of jobs whose client is gone or whose time is over."""
        end = time.perf_counter() - self.limits.request_seconds
        for running in [each for each in self._running if each.job.cancelled or each.job.arrived < end]:
            self._leave(running)
            self._give_up(running.job)
        with self._changed:
            over = [job for job in self._waiting if job.cancelled or job.arrived < end]
            self._waiting = deque(job for job in self._waiting if job not in over)
        for job in over:
            self._give_up(job)

    def _give_up(self, job: Job) -> None:
        if job.cancelled:
            self.metrics.requests.labels("cancelled").inc()
        else:
            self._end(job, timed_out(self.limits.request_seconds))

    def _leave(self, running: _Running) -> None:
        self._batch.leave(running.member)
        with self._changed:
            self._running.remove(running)

    def _end(self, job: Job, error: ApiError) -> None:
        self.metrics.requests.labels(str(error.code)).inc()
        job.put(Failed(error))

    def _recover(self, error: Exception) -> None:
        """All requests of the batch fail; the next ones begin with an empty pool."""
        _log.error("a step failed; its requests are given up", exc_info=error)
        with self._changed:
            lost, self._running = self._running, []
        for running in lost:
            self._end(running.job, failed())
        try:
            self._batch.reset()
        except Exception as again:
            _log.error("the pool cannot be rebuilt; the server ends", exc_info=again)
            self.broken = again
            with self._changed:
                self._closed = True

    def _count(self, now: float, tokens: int) -> None:
        self.metrics.tokens.inc(tokens)
        self._throughput.add(now, tokens)

    def _wait_seconds(self) -> int:
        rounds = (len(self._waiting) + 1) / self.limits.batch
        return min(60, max(1, math.ceil(rounds * self._typical_seconds)))

    def _publish(self) -> None:
        """What others may see."""
        now = time.perf_counter()
        if now - self._published < _PUBLISH_SECONDS and self._running:
            return
        self._published = now
        rate = self._throughput.rate(now)
        engine, running, waiting = self._session.engine, len(self._running), len(self._waiting)
        self.snapshot = take_snapshot(engine, self._batch, running, waiting, rate)
