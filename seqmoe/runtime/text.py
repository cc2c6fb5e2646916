"""Text from tokens, piece by piece."""

from __future__ import annotations

from typing import Any

_UNFINISHED = "\ufffd"


class TextStream:
    """Decodes tokens as they come. A letter whose bytes are spread over several tokens is given with its last one."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        # What was given out stays in front of what is new, since a token's text can depend on the one before it.
        self._given: list[int] = []
        self._new: list[int] = []

    def add(self, token: int) -> str:
        """The text that is certain by now and was not given before."""
        self._new.append(token)
        text = self._text()
        return "" if text.endswith(_UNFINISHED) else self._give(text)

    def rest(self) -> str:
        """What is left at the end, unfinished letters as replacement characters."""
        return self._give(self._text())

    def _text(self) -> str:
        before = self._tokenizer.decode(self._given)
        whole: str = self._tokenizer.decode(self._given + self._new)
        return whole[len(before) :]

    def _give(self, text: str) -> str:
        if self._new:
            self._given, self._new = self._new, []
        return text
