"""What clients send, as OpenAI's API has it. What would need more than this server can do is refused by name."""

from __future__ import annotations

import reprlib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

# Parameters of the API that are accepted as long as they ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "top_logprobs": (),
    "presence_penalty": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "logit_bias": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
_Stop = Annotated[str, Field(min_length=1, max_length=256)]
_Count = Annotated[int, Field(ge=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class StreamOptions(_Strict):
    """``include_usage`` asks for a last chunk with the counts, ``continuous_usage_stats``, an extension that load
    generators use, for the counts so far in every chunk; obfuscation is never added.
    """

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool = False


class _Request(_Strict):
    """What both kinds of request share. ``ignore_eos`` is an extension that load generators use."""

    model: str
    stream: bool = False
    stream_options: StreamOptions | None = None
    stop: Annotated[list[_Stop], Field(max_length=4)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    user: str | None = None
    ignore_eos: bool = False

    @model_validator(mode="before")
    @classmethod
    def _drop_neutral(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        for name, harmless in _NEUTRAL.items():
            if name in data and data[name] is not None and data[name] not in harmless:
                raise ValueError(f"{name}: {reprlib.repr(data[name])} is not supported by this server; leave it out")
        return {name: value for name, value in data.items() if name not in _NEUTRAL}

    @field_validator("stop", mode="before")
    @classmethod
    def _list_of_stops(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _options_need_a_stream(self) -> _Request:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options: only allowed where stream is true")
        return self

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end the answer."""
        return tuple(self.stop or ())


class CompletionRequest(_Request):
    """`/v1/completions`: one prompt, as text or token ids."""

    prompt: str | list[int] | list[str] | list[list[int]]
    max_tokens: _Count | None = None

    @field_validator("prompt")
    @classmethod
    def _one_prompt(cls, value: Any) -> Any:
        if isinstance(value, list) and value and not isinstance(value[0], int):
            if len(value) > 1:
                raise ValueError("one prompt to a request; send several requests at once instead")
            return value[0]
        return value

    @property
    def tokens(self) -> int | None:
        """The longest answer; OpenAI's default is 16."""
        return 16 if self.max_tokens is None else self.max_tokens


class TextPart(_Strict):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


class Message(_Strict):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None

    @property
    def plain(self) -> dict[str, str]:
        """As chat templates read it."""
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": self.role, "content": content}


class ChatRequest(_Request):
    """`/v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: _Count | None = None
    max_completion_tokens: _Count | None = None

    @property
    def tokens(self) -> int | None:
        """The longest answer; None for what the context has room for."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
