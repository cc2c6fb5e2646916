"""Protects `seqmoe serve` from options that cannot be meant: one line that says what to do, before anything loads."""

from __future__ import annotations

import pytest

from seqmoe.cli import serve
from seqmoe.spec.errors import InputError


@pytest.fixture
def refused(monkeypatch, seqmoe):
    """Run `seqmoe serve ARGS`, which must be refused; what it said."""
    monkeypatch.delenv("SEQMOE_TOKEN", raising=False)

    def run(*arguments):
        code, _, err = seqmoe("serve", "--port", "0", *arguments)
        assert code == 2
        return err

    return run


def test_options_that_do_not_fit(refused, tiny_checkpoint, tmp_path):
    (tmp_path / "empty").write_text("")
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "broken").write_text("{% if %}")
    tiny = ("--model", tiny_checkpoint, "--system", "lru")
    for arguments, said in (
        (("--host", "0.0.0.0"), "--token-file"),
        (("--token", "two words"), "one word"),
        (("--token-file", tmp_path / "empty"), "one word"),
        (("--token-file", tmp_path / "binary"), "one word"),
        (("--token-file", tmp_path / "none"), "No such file"),
        (("--token-file", tmp_path / "token", "--token", "x"), "one of them"),
        (("--host", "no.such.host.invalid", "--token", "x"), "choose another address"),
        (("--chat-template", tmp_path / "none"), "no such file"),
        (("--name", ""), "--name ''"),
        (("--name", " "), "clients need a name"),
        (("--system", "lru", "--predictor", "x"), "makes no forecasts"),
        (("--batch", "0"), "batch"),
        (("--max-seconds", "nan"), "--max-seconds"),
        (("--silent-seconds", "inf"), "--silent-seconds"),
        (("--threads", "100000"), "--threads"),
        ((*tiny, "--chat-template", tmp_path / "broken"), "no Jinja template"),
        ((*tiny, "--residency", "0.1", "--batch", "2"), "a batch of 2"),
        ((*tiny, "--context", "10000"), r"[2, 512]"),
    ):
        assert said in refused(*arguments).replace("\n", " "), arguments


def test_without_the_extra_it_is_named(refused, monkeypatch):
    monkeypatch.setattr(serve, "find_spec", lambda name: None)
    assert "pip install 'seqmoe[serve]'" in refused()


def test_where_the_token_comes_from(monkeypatch, tmp_path):
    (tmp_path / "token").write_text("from-file\nanother line\n")
    assert serve._secret(None, None) is None
    assert serve._secret("given", None) == "given"
    assert serve._secret(None, tmp_path / "token") == "from-file"
    monkeypatch.setenv("SEQMOE_TOKEN", "from-variable")
    assert serve._secret("from-variable", tmp_path / "token") == "from-file"
    with pytest.raises(InputError, match="one of them"):
        serve._secret("given", tmp_path / "token")
