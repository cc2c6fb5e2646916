"""Protects that Prometheus itself scrapes the server: its samples are the server's counts. Needs its binaries."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time

import httpx
import pytest

CONFIG = """\
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: seqmoe
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
_SECONDS = 60

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="Prometheus is not installed (Debian: apt-get install prometheus)"
)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _query(client: httpx.Client, expression: str) -> dict[tuple[str, ...], float]:
    """Values by the labels that are not Prometheus' own; empty where it has no sample or does not answer yet."""
    try:
        found = client.get("/api/v1/query", params={"query": expression}).json()["data"]["result"]
    except httpx.TransportError:
        return {}
    own = ("__name__", "instance", "job")
    return {
        tuple(value for name, value in sorted(one["metric"].items()) if name not in own): float(one["value"][1])
        for one in found
    }


@pytest.fixture
def scraped(serve_with, tmp_path):
    """A server, and a client of the Prometheus that scrapes it every second."""
    with serve_with() as server:
        config = tmp_path / "prometheus.yml"
        config.write_text(CONFIG.format(port=server.port))
        port = _free_port()
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
                   f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
        with (tmp_path / "prometheus.log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
                yield server, client
        finally:
            process.terminate()
            process.wait(timeout=30)


def test_what_it_stores_is_what_the_server_counted(scraped):
    server, client = scraped
    usages = [server.complete("x" * length, max_tokens=length).json()["usage"] for length in (3, 5)]
    expected = sum(usage["completion_tokens"] for usage in usages)
    end = time.monotonic() + _SECONDS
    while _query(client, "seqmoe_generated_tokens_total") != {(): expected}:
        assert time.monotonic() < end, "Prometheus never saw the tokens"
        time.sleep(0.2)
    assert _query(client, "up") == {(): 1.0}
    slots = _query(client, "seqmoe_slots")
    assert {state for (state,) in slots} == {"empty", "used", "compute", "fetch"}
    assert sum(slots.values()) == round(0.45 * 48)
    count = _query(client, "seqmoe_time_to_first_token_seconds_count")
    assert count == {(): 2.0}
    assert _query(client, "histogram_quantile(0.5, seqmoe_time_to_first_token_seconds_bucket)")[()] > 0


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_its_linter_finds_no_fault(served):
    served.complete("x")
    text = served.client.get("/metrics").text
    told = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
