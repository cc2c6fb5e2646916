"""Protects conversations: they reach the model as its template writes them, and what has no template says so."""

from __future__ import annotations

import shutil
import sys

import pytest
from transformers import AutoTokenizer

from seqmoe import __main__ as command
from seqmoe.runtime.chat import chat_template, encode_chat
from seqmoe.runtime.text import StoppedText
from seqmoe.spec.errors import InputError

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def chatty(tiny_checkpoint, tmp_path_factory):
    """The tiny model with a chat template."""
    folder = tmp_path_factory.mktemp("chatty") / "model"
    shutil.copytree(tiny_checkpoint, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def generate(monkeypatch, capsys):
    """Run `seqmoe generate ARGS`; its exit code, stdout and stderr."""

    def run(*arguments):
        shared = ("--system", "lru", "--tokens", "12")
        monkeypatch.setattr(sys, "argv", ["seqmoe", "generate", *shared, *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            command.main()
        return stopped.value.code, *capsys.readouterr()

    return run


def test_messages_become_the_templates_text(chatty):
    tokenizer = AutoTokenizer.from_pretrained(chatty)
    template = chat_template(tokenizer)
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    text = "<user>a\n<assistant>b\n<user>c\n<assistant>"
    assert tokenizer.decode(encode_chat(tokenizer, template, messages)) == text
    with pytest.raises(InputError, match="no system here"):
        encode_chat(tokenizer, template, [{"role": "system", "content": "a"}])


def test_a_template_in_a_file_goes_first(chatty, tiny_checkpoint, tmp_path):
    path = tmp_path / "chat.jinja"
    path.write_text("{{ messages[0].content }}!")
    for folder in (chatty, tiny_checkpoint):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        ids = encode_chat(tokenizer, chat_template(tokenizer, path), [{"role": "user", "content": "a"}])
        assert tokenizer.decode(ids) == "a!"
    path.write_text("{% if %}")
    with pytest.raises(InputError, match=r"chat\.jinja: is no Jinja template"):
        chat_template(tokenizer, path)


def test_a_message_is_answered_as_the_prompt_that_the_template_makes(chatty, generate):
    code, out, _ = generate("--model", chatty, "--prompt", "hello", "--chat")
    again, plain, _ = generate("--model", chatty, "--prompt", "<user>hello\n<assistant>", "--temperature", "0")
    assert (code, again) == (0, 0)
    assert out == plain


def test_a_seed_gives_the_same_answer(chatty, generate):
    how = ("--model", chatty, "--prompt", "hello", "--temperature", "1.5", "--top-p", "0.95", "--seed")
    first, second, other = (generate(*how, seed)[1] for seed in (1, 1, 2))
    assert first == second != other


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--chat",), "no chat template"),
        (("--seed", "1"), "--temperature"),
        (("--chat", "--top-p", "0.5"), "--temperature"),
        (("--temperature", "3"), r"--temperature = 3.0"),
        (("--temperature", "1", "--top-p", "2"), r"--top-p = 2.0"),
        (("--temperature", "1", "--routing", "replay:x"), "leave them out"),
    ],
)
def test_what_does_not_fit_is_refused(tiny_checkpoint, generate, arguments, message):
    code, _, err = generate("--model", tiny_checkpoint, "--prompt", "hello", *arguments)
    assert code == 2
    assert message in err


class _Letters:
    def decode(self, tokens):
        return "".join(map(chr, tokens))


@pytest.mark.parametrize(
    ("stops", "said", "pieces"),
    [
        ((), "abcabd", ["a", "b", "c", "a", "b", "d"]),
        (("abd",), "abc", ["", "", "abc", "", "", ""]),
        (("x",), "abcabd", ["a", "b", "c", "a", "b", "d"]),
        (("bda",), "abcabd", ["a", "", "bc", "a", "", ""]),
        (("ca", "abc"), "", ["", "", ""]),
        (("bc", "c"), "a", ["a", "", ""]),
    ],
)
def test_text_ends_before_the_first_stop(stops, said, pieces):
    text, got = StoppedText(_Letters(), stops), []
    for letter in "abcabd":
        got.append(text.add(ord(letter)))
        if text.stopped:
            break
    assert got == pieces
    assert "".join(got) + text.rest() == said
