"""Protects what operators see: metrics that Prometheus reads and that agree with the clients, and the live page."""

from __future__ import annotations

import re
import time
from importlib import resources

from prometheus_client.parser import text_string_to_metric_families


def _read(server):
    text = server.client.get("/metrics").text
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_counts_are_the_clients(serve_with):
    with serve_with() as server:
        before = _read(server)
        assert ("seqmoe_expert_hit_rate",) not in before
        usages = [server.complete("x" * length, max_tokens=length).json()["usage"] for length in (3, 5, 9)]
        server.complete("x", max_tokens=-1)
        server.complete("x" * 4, max_tokens=4, stream=True)
        # The last answer is out before the state that is told of it.
        end = time.monotonic() + 60
        while server.scheduler.snapshot.decode["needed"] < (3 + 5 + 9 + 4 - 4) * 4 * 3:
            assert time.monotonic() < end
        after = _read(server)
    assert after["seqmoe_prompt_tokens_total",] == sum(usage["prompt_tokens"] for usage in usages) + 4
    assert after["seqmoe_generated_tokens_total",] == sum(usage["completion_tokens"] for usage in usages) + 4
    assert after["seqmoe_requests_total", "length"] == 4
    assert after["seqmoe_time_to_first_token_seconds_count",] == 4
    assert after["seqmoe_request_seconds_count",] == 4
    # Between n tokens lie n - 1 gaps.
    assert after["seqmoe_inter_token_latency_seconds_count",] == after["seqmoe_generated_tokens_total",] - 4
    steps = after["seqmoe_inter_token_latency_seconds_count",]
    found = {name: after["seqmoe_experts_total", name, "decode"] for name in ("needed", "hits", "late", "misses")}
    assert found["needed"] == found["hits"] + found["late"] + found["misses"] == steps * 4 * 3
    assert after["seqmoe_expert_hit_rate",] == found["hits"] / found["needed"]
    loads = found["misses"] + after["seqmoe_experts_total", "misses", "prefill"]
    size = server.scheduler.snapshot.expert_bytes
    assert after["seqmoe_transferred_bytes_total", "on_demand"] == loads * size
    assert sum(value for key, value in after.items() if key[0] == "seqmoe_slots") == round(0.45 * 48)
    assert after["seqmoe_queue_depth",] == after["seqmoe_running_requests",] == 0
    assert after["seqmoe_tokens_per_second",] > 0


def test_the_page_needs_nothing_from_elsewhere_and_reads_what_there_is(served):
    served.complete("x")
    page = served.client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert page.text == resources.files("seqmoe.serve").joinpath("page.html").read_text()
    assert not re.search(r"https?://|//[a-z]|@import|<link(?! rel=\"icon\" href=\"data:)|src=", page.text)
    assert "prefers-color-scheme: dark" in page.text
    status = served.client.get("/status").json()
    read = set(re.findall(r"\b(?:now|here|then|before|each)\.(\w+)", page.text))
    assert read <= set(status)
    assert {"tokens_per_second", "hit_rate", "slots", "bytes"} <= read
    assert set(re.findall(r"bytes\.(\w+)", page.text)) <= set(status["bytes"])
    assert set(status["slots"]) == set(re.findall(r'\["(\w+)", "', page.text))
