"""Which node gets which runs, and what becomes of a lost node's, without Ray: agents are played by a script."""

from __future__ import annotations

import pytest
from harness_samples import cell

from seqmoe.cli.cluster_options import cluster_arguments, cluster_options
from seqmoe.harness.executors.base import Outcome, always
from seqmoe.harness.executors.cluster import executor as executor_module
from seqmoe.harness.executors.cluster.agent import Facts, Survey
from seqmoe.harness.executors.cluster.crew import Lost, Ready
from seqmoe.harness.executors.cluster.executor import MOST_TRIES, ClusterExecutor
from seqmoe.harness.executors.cluster.nodes import Node, common_host, no_node, resource_of
from seqmoe.harness.executors.cluster.placing import Placing
from seqmoe.harness.failures import killed_from_outside
from seqmoe.harness.plan import Run
from seqmoe.harness.record import Observations, Status
from seqmoe.harness.stores import Stores
from seqmoe.spec.errors import InputError

CARD = {"CPU": 4.0, "card": 1.0}


class Played:
    """Agents that answer every run at once; ``lose(node, run)`` says which are lost instead, with their node or not."""

    def __init__(self, nodes, lose=lambda node, run: None, mute=False):
        self.alive, self.lose, self.mute = list(nodes), lose, mute
        self.did, self.held, self.ended, self.waiting = [], [], None, []

    def nodes(self):
        return list(self.alive)

    def hire(self, node, resource):
        assert node not in self.held  # never two at a time on one node
        self.held.append(node)
        self.waiting.append((node, None))

    def give(self, node, run):
        self.did.append((node.name, run))
        self.waiting.append((node, run))

    def wait(self, seconds):
        events, self.waiting = [], []
        for node, run in self.taken():
            event = self.answer(node, run)
            if event is not None:
                events.append((node.id, event))
        return events

    def taken(self):
        return self._last

    @property
    def waiting(self):
        return self._waiting

    @waiting.setter
    def waiting(self, value):
        self._last = getattr(self, "_waiting", [])
        self._waiting = value

    def answer(self, node, run):
        if run is None:
            return Ready()
        lost = self.lose(node, run)
        if lost == "node":
            self.alive.remove(node)
        if lost:
            return Lost("it is gone", failed=lost == "failed")
        if self.mute:
            return None
        return Outcome(Status("ok"), Observations(), "now", 0.0, {"host": node.name})

    def dismiss(self, node, at_once=False):
        self.held.remove(node)

    def end(self, killed):
        self.ended = killed


def node(name, **resources):
    return Node(f"id-{name}", name, resources or CARD)


def placed(nodes, cells, hardware="card", hosts=None, obstacles=None):
    def survey(n):
        def fact(point):
            return Facts((obstacles or {}).get((n.name, point.system)), {"host": n.name, "of": point.system})

        return Survey((hosts or {}).get(n.name, "host"), {point.key: fact(point) for point in cells})

    return Placing(nodes, {n.id: survey(n) for n in nodes}, hardware)


def carried_out(played, placing, runs, needed=always):
    with ClusterExecutor(played, placing, timeout=10.0) as executor:
        return list(executor.execute(runs, needed))


RUNS = [Run(cell(system=system), repeat, "g") for repeat in (0, 1) for system in ("full", "lru")]
CELLS = [run.cell for run in RUNS]


def test_only_measured_cells_ask_for_hardware() -> None:
    assert resource_of(cell(), "card") == "card" and resource_of(cell()) == ""
    assert resource_of(cell(lane="emulated", hardware="rtx4090"), "card") == ""
    assert node("a", CPU=1.0).offers("") and not node("a", CPU=1.0).offers("card")
    assert not node("a", card=1.0).offers("card")  # a worker needs a CPU
    status = no_node("card", [node("a", CPU=1.0, other=1.0)], ["b"])
    assert status.kind == "not_installed" and "'card'" in status.reason and "CPU, other" in status.reason
    assert "node b was lost" in status.reason and "--resources='{\"card\": 1}'" in status.hint


def test_runs_of_a_model_keep_their_order_on_one_node_and_models_share_the_nodes() -> None:
    nodes, other = [node("a"), node("b")], [Run(cell(model="big"), 0, "h")]
    played = Played(nodes)
    done = carried_out(played, placed(nodes, [*CELLS, other[0].cell]), [*RUNS, *other])
    assert [run for name, run in played.did if name == "a"] == RUNS
    assert [run for name, run in played.did if name == "b"] == other
    assert len(done) == 5 and played.held == [] and played.ended is False


def test_cells_go_to_the_commonest_host_and_elsewhere_only_when_it_is_gone() -> None:
    hosts = {"a": "fast", "b": "slow", "c": "slow"}
    assert common_host(hosts.values()) == "slow" and common_host(["b", "a"]) == "a"
    nodes = [node(name) for name in hosts]
    placing = placed(nodes, CELLS, hosts=hosts)
    assert placing.environment_of(CELLS[0])["host"] == "b"
    (lot,) = placing.lots(RUNS)
    assert [n.name for n in placing.fitting(lot, nodes)] == ["b", "c"]
    assert [n.name for n in placing.fitting(lot, nodes[:1])] == ["a"]


def test_a_cell_goes_only_where_it_can_be_started() -> None:
    nodes = [node("a"), node("b")]
    gone = Status("not_installed", "no environment")
    placing = placed(nodes, CELLS, obstacles={("a", "lru"): gone})
    played = Played(nodes)
    carried_out(played, placing, RUNS)
    assert {name for name, run in played.did if run.cell.system == "lru"} == {"b"}
    everywhere = placed(nodes, CELLS, obstacles={("a", "lru"): gone, ("b", "lru"): gone})
    assert everywhere.facts(cell(system="lru")).obstacle == gone
    assert placed(nodes, CELLS, hardware="absent").facts(cell()) is None


def test_a_lost_nodes_runs_move_and_the_lost_one_is_begun_again() -> None:
    nodes = [node("a"), node("b")]
    played = Played(nodes, lambda n, run: "node" if n.name == "a" and run == RUNS[1] else None)
    done = carried_out(played, placed(nodes, CELLS), RUNS)
    assert [run for run, _ in done] == RUNS and all(outcome.status.ok for _, outcome in done)
    assert [outcome.environment["host"] for _, outcome in done] == ["a", "b", "b", "b"]
    assert [name for name, _ in played.did] == ["a", "a", "b", "b", "b"]


def test_without_another_node_the_run_has_crashed_and_the_rest_never_began() -> None:
    nodes = [node("a")]
    played = Played(nodes, lambda n, run: "node" if run == RUNS[1] else None)
    done = carried_out(played, placed(nodes, CELLS), RUNS)
    assert [outcome.status.kind for _, outcome in done] == ["ok", "crash", "not_installed", "not_installed"]
    assert killed_from_outside(done[1][1].status) and "a (it is gone)" in done[1][1].status.reason
    assert "node a was lost" in done[2][1].status.reason
    assert done[1][1].environment == {"host": "a", "of": "lru"}


def test_a_run_that_ends_every_agent_is_given_up() -> None:
    nodes = [node("a"), node("b")]
    played = Played(nodes, lambda n, run: "agent" if run == RUNS[0] else None)
    done = carried_out(played, placed(nodes, CELLS), RUNS)
    assert [outcome.status.kind for _, outcome in done] == ["crash", "ok", "ok", "ok"]
    assert [run for _, run in played.did].count(RUNS[0]) == MOST_TRIES
    failing = Played(nodes, lambda n, run: "failed" if run == RUNS[0] else None)
    done = carried_out(failing, placed(nodes, CELLS), RUNS)
    assert done[0][1].status.reason == "the node's agent failed: it is gone"
    assert [run for _, run in failing.did].count(RUNS[0]) == 1


def test_runs_that_are_not_needed_any_more_are_not_begun() -> None:
    nodes = [node("a")]
    played = Played(nodes)
    carried_out(played, placed(nodes, CELLS), RUNS, lambda run: run.repeat == 0)
    assert [run.repeat for _, run in played.did] == [0, 0] and played.held == []


def test_a_node_that_does_not_answer_hangs_and_is_left(monkeypatch) -> None:
    monkeypatch.setattr(executor_module, "_GRACE_SECONDS", -10.0)
    nodes = [node("a")]
    done = carried_out(Played(nodes, mute=True), placed(nodes, CELLS), RUNS[:1])
    assert [outcome.status.kind for _, outcome in done] == ["hang"]


def test_an_interrupted_sweep_keeps_what_has_been_finished_by_then() -> None:
    nodes = [node("a")]
    played = Played(nodes)
    with pytest.raises(KeyboardInterrupt), ClusterExecutor(played, placed(nodes, CELLS), 10.0) as executor:
        wait = played.wait

        def interrupted(seconds):
            if seconds and len(played.did) == 2:
                raise KeyboardInterrupt
            return wait(seconds)

        played.wait = interrupted
        done = []
        for run, _ in executor.execute(RUNS):
            done.append(run)
    assert done == RUNS[:2] and played.ended is True


def test_options_of_a_cluster_belong_to_ray() -> None:
    assert cluster_options("local", None, None, None) is None
    with pytest.raises(InputError, match="--hardware card: is about a cluster"):
        cluster_options("local", None, None, "card")
    with pytest.raises(InputError, match=r"--executor rai: unknown; .*ray"):
        cluster_options("rai", None, None, None)


def test_without_ray_the_extra_is_named(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'seqmoe\[ray\]'"):
        cluster_options("ray", None, None, None)


def test_the_command_that_is_shown_again_names_the_cluster() -> None:
    from seqmoe.harness.executors.cluster.site import ClusterOptions

    assert cluster_arguments(ClusterOptions("h:1", hardware="card")) == [
        "--executor", "ray", "--ray-address", "h:1", "--hardware", "card",
    ]  # fmt: skip


def test_every_host_has_a_store_of_its_own_and_a_second_sweep_is_refused(tmp_path) -> None:
    with Stores(tmp_path, "demo", ["a", "b"]) as stores:
        assert stores.place == tmp_path and stores.records == ()
        with pytest.raises(InputError, match="another sweep is writing"):
            Stores(tmp_path, "demo", ["c", "b"])
        with Stores(tmp_path, "demo", ["c"]) as other:  # what the refused one had opened is free again
            assert other.place == tmp_path / "c" / "demo.jsonl"
