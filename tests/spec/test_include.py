"""Suites that include others: whose blocks they have, and what is said where that goes wrong."""

from __future__ import annotations

import pytest

from seqmoe.spec.errors import InputError
from seqmoe.spec.prediction import load_prediction_suite
from seqmoe.spec.suite import load_suite

HEAD = 'schema = 1\nname = "{name}"\ntitle = "T"\nfigure = "6"\n'
BLOCK = """
[[profile.{profile}.block]]
panel = "{panel}"
lane = "measured"
systems = ["lru"]
models = ["tiny"]
residency = [0.25]
dataset = "few"
prompts = 2
decode_tokens = [4]
"""


@pytest.fixture
def suite(tmp_path):
    """Write a suite: its name, what it includes (TOML), its blocks as (profile, panel), repeats or none."""

    def write(name, include="", blocks=(), repeats=8, more=""):
        text = HEAD.format(name=name) + (f"include = {include}\n" if include else "") + more
        for profile in dict.fromkeys(profile for profile, _ in blocks):
            text += f"[profile.{profile}]\n" + (f"repeats = {repeats}\n" if repeats else "")
        text += "".join(BLOCK.format(profile=profile, panel=panel) for profile, panel in blocks)
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        return path

    return write


def panels(path, profile="quick"):
    return [cell.panel for cell in load_suite(path).cells(profile)]


def test_included_blocks_come_first_and_bear_the_including_suites_name(suite):
    suite("base", blocks=[("quick", "p"), ("full", "q")])
    path = suite("own", '"base.toml"', [("quick", "r")])
    assert panels(path) == ["p", "r"] and panels(path, "full") == ["q"]
    assert {cell.suite for cell in load_suite(path).cells("quick")} == {"own"}


def test_includes_of_includes_and_lists_keep_their_order(suite):
    suite("one", blocks=[("quick", "a")])
    suite("two", '"one.toml"', [("quick", "b")])
    suite("three", blocks=[("quick", "c")])
    assert panels(suite("own", '["two.toml", "three.toml"]', [("quick", "d")])) == ["a", "b", "c", "d"]


def test_repeats_and_threshold_are_inherited_where_there_are_none(suite):
    suite("base", blocks=[("quick", "p")], repeats=5, more="[regression]\nthreshold = 0.2\n")
    found = load_suite(suite("own", '"base.toml"', [("quick", "r")], repeats=0))
    assert found.profile["quick"].repeats == 5 and found.regression.threshold == 0.2
    own = load_suite(suite("other", '"base.toml"', more="[regression]\nthreshold = 0.3\n"))
    assert own.regression.threshold == 0.3 and own.profile["quick"].repeats == 5


@pytest.mark.parametrize(
    ("include", "message"),
    [
        ('"own.toml"', "own.toml: include: goes round in a circle"),
        ('"round.toml"', "circle .own.toml -> round.toml -> own.toml"),
        ('"absent.toml"', "own.toml: include = 'absent.toml': .*absent.toml: no such file"),
        ("3", "expected a file, or a list of files"),
        ('["base.toml", "base.toml"]', "names a file twice"),
        ('"wrong.toml"', "wrong.toml: profile.quick: block.0.: residency = 2.0: must lie in"),
        ('"few.toml"', "repeats = 3 there and 8 here"),
        ('"study.toml"', "different kinds .systems and prediction"),
    ],
)
def test_what_is_wrong_names_the_file(suite, tmp_path, include, message):
    suite("base", blocks=[("quick", "p")])
    suite("round", '"own.toml"', [("quick", "p")])
    suite("few", blocks=[("quick", "p")], repeats=3)
    wrong = suite("wrong", blocks=[("quick", "p")])
    wrong.write_text(wrong.read_text().replace("[0.25]", "[2.0]"))
    (tmp_path / "study.toml").write_text(HEAD.format(name="study") + 'study = "prediction"\n')
    with pytest.raises(InputError, match=message):
        load_suite(suite("own", include, [("quick", "r")]))


def test_studies_include_studies(tmp_path):
    head = 'schema = 1\nname = "{}"\ntitle = "T"\nfigure = "8"\nstudy = "prediction"\n'
    block = '[[profile.quick.block]]\npanel = "p"\npredictors = ["{}"]\n'
    (tmp_path / "base.toml").write_text(head.format("base") + block.format("previous"))
    own = tmp_path / "own.toml"
    own.write_text(head.format("own") + 'include = "base.toml"\n' + block.format("popularity"))
    assert [cell.predictor for cell in load_prediction_suite(own).cells("quick")] == ["previous", "popularity"]


@pytest.mark.parametrize("threshold", [0.0, 0.049, 1.5])
def test_a_threshold_below_the_contracts_or_above_all_is_refused(suite, threshold):
    path = suite("own", blocks=[("quick", "p")], more=f"[regression]\nthreshold = {threshold}\n")
    with pytest.raises(InputError, match=r"own.toml: regression: threshold = .*: must lie in \[0.05, 1\]"):
        load_suite(path)
