"""What a suite names is checked before anything runs, and --only chooses what it says."""

from __future__ import annotations

import pytest
from harness_samples import SUITE, cell

from seqmoe.harness.declared_cells import check_cells
from seqmoe.harness.selection import choose, find_suite
from seqmoe.spec.errors import InputError

CELLS = [cell(system=s, residency=r, model=m) for m in ("tiny", "big") for s in ("lru", "seqmoe") for r in (0.25, 0.5)]


def test_a_suite_is_found_by_name_and_by_path(home) -> None:
    assert find_suite(home, "demo") == find_suite(home, home.suites / "demo.toml")
    assert find_suite(home, str(home.suites / "demo.toml")).name == "demo"


def test_an_unknown_suite_names_the_nearest_and_a_missing_file_its_path(home) -> None:
    with pytest.raises(InputError, match=r"suite 'demos' is not declared.*did you mean 'demo'"):
        find_suite(home, "demos")
    with pytest.raises(InputError, match=r"no/such\.toml: no such file"):
        find_suite(home, "no/such.toml")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("prompts = 2", "prompts = 20", "suite 'demo': prompts = 20: "),
        ('"lru"', '"lruu"', "suite 'demo': systems = 'lruu': unknown; did you mean 'lru'"),
        ('["tiny"]', '["tinny"]', "suite 'demo': models = 'tinny': "),
        ('"few"', '"many"', "suite 'demo': dataset = 'many': "),
        ("[0.25, 0.5]", "[0.01]", "suite 'demo': residency = 0.01: model 'tiny': "),
        ("[0.25, 0.5]", "[1.5]", "residency = 1.5"),
        ("dataset =", "dataest =", "unknown key 'dataest'; did you mean 'dataset'"),
        ('name = "demo"', 'name = "../demo"', "becomes a file name"),
        ('lane = "measured"', 'lane = "emulated"\nhardware = "cart"', "suite 'demo': hardware = 'cart': "),
    ],
)
def test_whatever_a_suite_has_wrong_is_an_input_error(home, old, new, words) -> None:
    (home.suites / "demo.toml").write_text(SUITE.replace(old, new))
    with pytest.raises(InputError) as caught:
        suite = find_suite(home, "demo")
        check_cells(home, suite.name, suite.cells("quick"))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"system": "rivall"}, r"systems = 'rivall': .*did you mean 'Rival'"),
        ({"model": "tinny"}, r"models = 'tinny': .*did you mean 'tiny'"),
        ({"hardware": "cart"}, r"hardware = 'cart': .*did you mean 'card'"),
        ({"dataset": "fewer"}, r"dataset = 'fewer': .*did you mean 'few'"),
        ({"residency": 0.01}, r"residency = 0\.01: .*smallest legal residency is 0\.1250"),
    ],
)
def test_the_file_that_was_given_the_key_and_the_nearest_are_named(home, change, words) -> None:
    with pytest.raises(InputError, match=rf"^suite 'own/mine\.toml': {words}"):
        check_cells(home, "own/mine.toml", [cell(**change)])


@pytest.mark.parametrize(
    "config", ['{"max_position_embeddings": 8}', '{"text_config": {"max_position_embeddings": 8}}']
)
def test_an_output_beyond_the_context_is_found_before_anything_runs(home, config) -> None:
    (home.work / "checkpoint" / "config.json").write_text(config)
    check_cells(home, "demo", [cell(decode_tokens=5)])
    message = r"suite 'demo': decode_tokens = 6: the longest prompt of 'few' has 3 tokens.* 8; valid: at most 5"
    with pytest.raises(InputError, match=message):
        check_cells(home, "demo", [cell(decode_tokens=5), cell(decode_tokens=6)])


def test_a_context_counts_only_where_checkpoint_and_tokenizer_are_here(home) -> None:
    (home.work / "checkpoint" / "config.json").write_text('{"max_position_embeddings": 8}')
    (home.work / "checkpoint" / "tokenizer.json").unlink()
    check_cells(home, "demo", [cell(decode_tokens=6)])


def test_an_own_suite_does_not_go_by_the_name_of_another(home, tmp_path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(SUITE)
    assert find_suite(home, own).name == "demo"
    own.write_text(SUITE.replace("repeats = 2", "repeats = 3"))
    with pytest.raises(InputError, match=r"own\.toml: name = 'demo': .*rename yours"):
        find_suite(home, own)
    own.write_text(SUITE.replace('name = "demo"', 'name = "mine"'))
    assert find_suite(home, own).name == "mine"


def test_a_model_folder_that_is_not_there_is_an_input_error(home) -> None:
    (home.work / "checkpoint" / "config.json").unlink()
    with pytest.raises(InputError, match=r"model 'tiny': path = .* has no config"):
        check_cells(home, "demo", find_suite(home, "demo").cells("quick"))


def test_a_baseline_is_a_system_by_its_name_in_the_paper_and_so_is_a_variant(home) -> None:
    check_cells(home, "demo", [cell(system="Rival")])
    declared = home.baselines / "rival" / "baseline.toml"
    text = declared.read_text().replace('model_format = "hf"', 'model_format = "gguf"')
    variant = '[variants."Rival (bf16)"]\ngguf = "bf16"\n[[capability]]'
    declared.write_text(text.replace("[[capability]]", variant, 1))
    check_cells(home, "demo", [cell(system="Rival (bf16)")])


def test_words_widen_a_field_and_narrow_across_fields() -> None:
    assert choose(CELLS, ["lru"]) == [c for c in CELLS if c.system == "lru"]
    assert choose(CELLS, ["lru,seqmoe"]) == CELLS
    assert choose(CELLS, ["lru", "tiny", "residency=0.50"]) == [cell(system="lru", residency=0.5, model="tiny")]
    assert choose(CELLS, [CELLS[3].key]) == [CELLS[3]]


@pytest.mark.parametrize("only", ["lruu", "system=lruu", "sistem=lru", "residency=much", "residency=0.9"])
def test_a_word_that_names_nothing_is_refused_with_the_nearest(only) -> None:
    with pytest.raises(InputError, match="--only"):
        choose(CELLS, [only])


def test_words_that_no_cell_has_together_are_refused() -> None:
    with pytest.raises(InputError, match="no cell has all"):
        choose([cell(system="lru", model="a"), cell(system="full", model="b")], ["lru", "b"])
