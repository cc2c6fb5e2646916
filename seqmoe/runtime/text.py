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


class StoppedText:
    """`TextStream` that ends before the first of some ``stops``. What may turn out to begin one is held back."""

    def __init__(self, tokenizer: Any, stops: tuple[str, ...] = ()) -> None:
        self._stream = TextStream(tokenizer)
        self._stops = stops
        self._held = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """The text that is certain by now and was not given before; ``stopped`` tells whether it was the last."""
        return self._check(self._stream.add(token))

    def rest(self) -> str:
        """What is left where no stop came."""
        if self.stopped:
            return ""
        text = self._check(self._stream.rest())
        return text if self.stopped else text + self._held

    def _check(self, new: str) -> str:
        if not self._stops:
            return new
        text = self._held + new
        found = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        kept = max(_beginning(text, stop) for stop in self._stops)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]


def _beginning(text: str, stop: str) -> int:
    """Letters at the end of ``text`` that are the beginning of ``stop``."""
    lengths = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((length for length in lengths if text.endswith(stop[:length])), 0)
