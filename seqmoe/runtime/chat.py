"""Conversations as a model was taught to read them: through the chat template that lies with its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError

from seqmoe.runtime.setup import encode
from seqmoe.spec.errors import InputError


def chat_template(tokenizer: Any, path: Path | None = None) -> str | None:
    """The template in a file, or the tokenizer's own; None where it has none. `InputError` for a file that is none."""
    if path is not None:
        try:
            text = path.read_text(encoding="utf-8")
            tokenizer.apply_chat_template([{"role": "user", "content": "x"}], chat_template=text, tokenize=False)
        except (UnicodeDecodeError, TemplateSyntaxError) as error:
            raise InputError(f"--chat-template {path}: is no Jinja template: {error}") from None
        except TemplateError:
            pass  # it wants other messages
        return text
    own = tokenizer.chat_template
    return own.get("default") if isinstance(own, dict) else own


def encode_chat(tokenizer: Any, template: str | None, messages: list[dict[str, str]]) -> list[int]:
    """Token ids of messages, each a role and its content, up to where the answer begins.

    Raises `InputError` without a template, and with the template's own words for what it refuses.
    """
    if template is None:
        raise InputError("the model has no chat template; give it a plain prompt, without --chat")
    try:
        text = tokenizer.apply_chat_template(
            messages, chat_template=template, tokenize=False, add_generation_prompt=True
        )
    except TemplateError as error:
        raise InputError(f"the model's chat template refuses these messages: {error}") from None
    return encode(tokenizer, text, special=False)
