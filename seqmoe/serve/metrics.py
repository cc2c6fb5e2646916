"""`/metrics`: what happened to requests, tokens, experts and the link, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from seqmoe.serve.snapshot import Snapshot

_SHORT = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_LONG = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)
_EXPERTS = ("needed", "hits", "late", "misses", "host_computed")


class Metrics:
    """Counts what the scheduler reports, and asks it for a `Snapshot` whenever somebody reads them."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "seqmoe_requests", "Requests by how they ended.", ["outcome"], registry=registry
        )  # fmt: skip
        self.prompt_tokens = Counter("seqmoe_prompt_tokens", "Tokens of prompts computed.", registry=registry)
        self.tokens = Counter("seqmoe_generated_tokens", "Tokens generated, ends of text included.", registry=registry)
        self.ttft = _histogram("seqmoe_time_to_first_token_seconds", "From arrival to first token.", _LONG, registry)
        self.itl = _histogram("seqmoe_inter_token_latency_seconds", "From token to token.", _SHORT, registry)
        self.waited = _histogram("seqmoe_queue_seconds", "From arrival to the batch.", _LONG, registry)
        self.lasted = _histogram("seqmoe_request_seconds", "From arrival to the last token.", _LONG, registry)
        registry.register(_State(snapshot))

    def text(self) -> bytes:
        """Everything, for a scraper."""
        return generate_latest(self._registry)


def _histogram(name: str, text: str, buckets: tuple[float, ...], registry: CollectorRegistry) -> Histogram:
    return Histogram(name, text, buckets=buckets, registry=registry)


class _State(Collector):
    """Gauges and the runtime's own counts."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        now = self._snapshot()
        yield GaugeMetricFamily("seqmoe_queue_depth", "Requests that wait.", now.waiting)
        yield GaugeMetricFamily("seqmoe_running_requests", "Requests in the batch.", now.running)
        yield GaugeMetricFamily("seqmoe_tokens_per_second", "Throughput of the last ten seconds.", now.tok_s)
        rate = GaugeMetricFamily("seqmoe_expert_hit_rate", "Needed experts found resident, decode steps since start.")
        if now.hit_rate is not None:
            rate.add_metric([], now.hit_rate)
        yield rate
        slots = GaugeMetricFamily("seqmoe_slots", "Expert slots by state.", labels=["state"])
        for state, count in now.slots.items():
            slots.add_metric([state], count)
        yield slots
        moved = CounterMetricFamily("seqmoe_transferred_bytes", "Bytes of experts moved, by why.", labels=["kind"])
        for kind, size in now.bytes.items():
            moved.add_metric([kind], size)
        yield moved
        experts = CounterMetricFamily("seqmoe_experts", "Experts needed, by what was found.", labels=["phase", "found"])
        stalls = CounterMetricFamily("seqmoe_stall_seconds", "Waiting for experts.", labels=["phase"])
        for phase, counts in (("decode", now.decode), ("prefill", now.prefill)):
            stalls.add_metric([phase], counts.get("stall_seconds", 0.0))
            for name in _EXPERTS:
                experts.add_metric([phase, name], counts.get(name, 0))
        yield experts
        yield stalls
