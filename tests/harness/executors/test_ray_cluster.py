"""A real Ray cluster of two raylets on this machine, with different resources: one is killed in the middle."""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from harness_samples import HARDWARE, FakeLauncher, eventually, processes_with

from seqmoe.harness.executors.cluster.site import ClusterOptions
from seqmoe.harness.runner import run_suite
from seqmoe.harness.store import read_records
from seqmoe.spec.errors import InputError

pytest.importorskip("ray", reason="Ray is not installed (pip install 'seqmoe[ray]')")
cluster_utils = pytest.importorskip("ray.cluster_utils")

HERE = Path(__file__).parent
SECONDS = 240.0
MEMORY = 80 * 2**20


@pytest.fixture(scope="module")
def cluster():
    """The head offers "steady" beside its CPU; tests add nodes that offer "card"."""
    with pytest.MonkeyPatch.context() as patch:
        paths = (str(HERE.parent), os.environ.get("PYTHONPATH", ""))
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        head = {"num_cpus": 1, "resources": {"steady": 1}, "include_dashboard": False, "object_store_memory": MEMORY}
        made = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
        yield made
        made.shutdown()


@pytest.fixture
def with_card(cluster):
    """Adds a node that offers one card; those that still live are removed after the test."""
    added = []

    def add():
        added.append(cluster.add_node(num_cpus=1, resources={"card": 1}, object_store_memory=MEMORY))
        return added[-1]

    yield add
    for node in added:
        if node in cluster.worker_nodes:
            cluster.remove_node(node)


def sweep(home, cluster, behaviour=None, hardware="card", **options):
    options |= {
        "launcher": FakeLauncher(home, behaviour),
        "cluster": ClusterOptions(cluster.address, hardware=hardware),
    }
    return run_suite(home, "demo", **options)


def ancestors(pid):
    """Process ids from the parent of ``pid`` up."""
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def node_of(nodes, pid):
    """The node among whose raylet's descendants the worker is."""
    above = ancestors(pid)
    return next(node for node in nodes if node.all_processes["raylet"][0].process.pid in above)


def kill_during(cluster, nodes, served, begun):
    """Kill the node of the run that is the ``begun``-th to begin, in a thread of its own."""

    def kill():
        if eventually(lambda: len(served()) >= begun, SECONDS):
            cluster.remove_node(node_of(nodes, served()[begun - 1]["pid"]), allow_graceful=False)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def kinds(records):
    return collections.Counter(record.status.kind for record in records)


def test_cells_run_where_their_resource_is_and_none_waits_for_a_missing_one(home, served, cluster, with_card) -> None:
    (home.suites / "hardware" / "absent.toml").write_text(HARDWARE.replace('"card"', '"absent"'))
    refused = sweep(home, cluster, hardware="absent")
    assert kinds(refused.records) == {"not_installed": 5} and served() == []
    status = refused.records[0].status
    assert "offers the resource 'absent' and a CPU" in status.reason and "steady" in status.reason
    assert "--resources='{\"absent\": 1}'" in status.hint

    node = with_card()
    result = sweep(home, cluster)
    assert result.written == 10 and kinds(result.records) == {"ok": 10}
    assert set(map(str, read_records(result.path)[-10:])) == set(map(str, result.records))
    for record in result.records:
        assert record.environment["host"] == result.host and record.environment["device"] == "cpu"
        assert record.environment["load_average"] >= 0 and record.environment["cpu"]["cores"] >= 1
    (worker,) = {line["pid"] for line in served()}  # one worker served all, on the node with the card
    assert node is not None and len(served()) == 10
    assert processes_with(str(home.work)) == [] and worker not in os.listdir("/proc")
    assert sweep(home, cluster).written == 0 and len(served()) == 10


def test_a_lost_nodes_cells_run_on_another(home, served, cluster, with_card) -> None:
    nodes = [with_card(), with_card()]
    thread = kill_during(cluster, nodes, served, begun=4)
    result = sweep(home, cluster, {"pause": 1.0})
    thread.join()
    assert len([node for node in nodes if node in cluster.worker_nodes]) == 1
    assert result.written == 10 and kinds(result.records) == {"ok": 10}
    asked = collections.Counter(json.dumps(line["cell"], sort_keys=True) for line in served())
    assert sum(asked.values()) == 11  # the run that was cut off is the only one that was begun twice


def test_cells_that_no_node_is_left_for_are_marked_and_run_later(home, served, cluster, with_card) -> None:
    thread = kill_during(cluster, [with_card()], served, begun=3)
    result = sweep(home, cluster, {"pause": 1.0})
    thread.join()
    lost = [record for record in result.records if record.status.kind == "crash"]
    assert len(lost) == 1 and lost[0].status.reason.startswith("the node was lost while the cell ran")
    assert sum(record.status.ok for record in result.records) == 2
    gone = [record for record in result.records if record.status.kind == "not_installed"]
    assert len(gone) == 2
    assert all("was lost" in record.status.reason for record in gone)

    with_card()
    again = sweep(home, cluster)
    assert kinds(again.records) == {"ok": 10} and again.written == 8
    assert processes_with(str(home.work)) == []


def test_an_interrupted_sweep_leaves_no_worker_and_goes_on_where_it_was(home, served, cluster, with_card) -> None:
    with_card()
    command = [sys.executable, str(HERE / "cluster_script.py"), str(home.work), cluster.address]
    behaviour = {"pause": 0.5, "seqmoe": "stubborn"}
    first = subprocess.Popen(
        [*command, json.dumps(behaviour)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    stuck = lambda: any(line["cell"]["system"] == "seqmoe" for line in served())  # noqa: E731
    assert eventually(lambda: stuck() or first.poll() is not None, SECONDS) and stuck(), first.communicate()
    first.send_signal(signal.SIGINT)
    _, words = first.communicate(timeout=SECONDS)
    assert first.returncode == 130 and "the same command goes on" in words
    assert processes_with(str(home.work)) == []
    kept = [record for path in home.results.glob("*/demo.jsonl") for record in read_records(path)]
    assert len(kept) == len(served()) - 1 and all(record.status.ok for record in kept)
    again = sweep(home, cluster)
    assert again.written == 10 - len(kept) and kinds(again.records) == {"ok": 10}


def test_a_runtime_environment_reaches_the_nodes_and_a_wrong_one_is_refused(home, served, cluster, with_card) -> None:
    with_card()
    path = home.work / "environment.toml"
    for text, fault in (("pips = 1", "unknown key 'pips'; .*pip"), ("pip = 1", "not a runtime environment")):
        path.write_text(text)
        with pytest.raises(InputError, match=fault):
            run_suite(home, "demo", cluster=ClusterOptions(cluster.address, path))
    path.write_text('env_vars = {SEQMOE_MARK = "given"}')
    options = ClusterOptions(cluster.address, path, "card")
    result = run_suite(home, "demo", only=["system=full"], launcher=FakeLauncher(home), cluster=options)
    assert kinds(result.records) == {"ok": 2}
    assert {line["mark"] for line in served()} == {"given"}


def test_no_cluster_is_an_error_that_says_how_to_start_one(home) -> None:
    with pytest.raises(InputError, match="remote client is not supported"):
        run_suite(home, "demo", cluster=ClusterOptions("ray://127.0.0.1:10001"))
    with pytest.raises(InputError, match="ray start --head"):
        run_suite(home, "demo", cluster=ClusterOptions("127.0.0.1:1"))
