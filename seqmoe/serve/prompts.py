"""From what a client sent to the tokens of its prompt, on a thread of its own: long texts take seconds."""

from __future__ import annotations

import asyncio
import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from seqmoe.runtime.chat import chat_template, encode_chat
from seqmoe.runtime.setup import encode
from seqmoe.serve.errors import ApiError, invalid
from seqmoe.spec.errors import InputError


class Prompts:
    """Encodes with a tokenizer of its own, since one tokenizer is not to be used by two threads."""

    def __init__(self, tokenizer: Any, vocabulary: int, context: int, template: Path | None = None) -> None:
        self._tokenizer = copy.deepcopy(tokenizer)
        self._template = chat_template(tokenizer, template)
        self._vocabulary, self._context = vocabulary, context
        self._longest_token = max(map(len, tokenizer.get_vocab()))
        self._thread = ThreadPoolExecutor(1, "seqmoe-tokenizer")

    async def of_text(self, prompt: str | list[int]) -> list[int]:
        """Of a plain prompt, which may be token ids already."""
        if isinstance(prompt, list):
            wrong = next((token for token in prompt if not 0 <= token < self._vocabulary), None)
            if wrong is not None:
                raise invalid(f"prompt: token {wrong} is none of the model's {self._vocabulary}", "prompt")
            return prompt
        self._check_letters(prompt, "prompt")
        return await self._run(encode, self._tokenizer, prompt, param="prompt")

    async def of_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Of a conversation, by the model's chat template."""
        if self._template is None:
            raise invalid(
                "this model has no chat template: use /v1/completions, or start the server with --chat-template FILE",
                "messages",
                "no_chat_template",
            )
        self._check_letters("".join(message["content"] for message in messages), "messages")
        return await self._run(encode_chat, self._tokenizer, self._template, messages, param="messages")

    def answer_room(self, prompt: list[int], tokens: int | None, param: str) -> int:
        """How long the answer may be; `ApiError` where prompt and answer exceed the context."""
        if not prompt:
            raise invalid(f"{param}: has no tokens; give at least one character", param)
        room = self._context - len(prompt)
        if room < 1 or (tokens is not None and tokens > room):
            asked = "" if tokens is None else f" and {tokens} of the answer"
            raise self._too_long(f"{len(prompt)} tokens{asked}", param)
        return room if tokens is None else tokens

    def _check_letters(self, text: str, param: str) -> None:
        # Before any work: this many letters are more tokens than the context has, whatever they are.
        if len(text) > self._context * self._longest_token:
            raise self._too_long(f"{len(text)} characters", param)

    def _too_long(self, what: str, param: str) -> ApiError:
        message = f"{param}: {what} exceed this server's context of {self._context} tokens"
        return invalid(message, param, "context_length_exceeded")

    async def _run(self, function: Any, *arguments: Any, param: str) -> list[int]:
        try:
            ids: list[int] = await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
        except InputError as error:
            raise invalid(f"{param}: {error}", param) from None
        return ids
