"""An engine over random weights: its prompts are those of traces, and so is what its routers choose."""

from __future__ import annotations

from seqmoe.runtime.decode import Generation, OnToken
from seqmoe.runtime.engine import Engine
from seqmoe.runtime.random_model.opened import Opened
from seqmoe.runtime.random_model.prompts import Prompt, prompt_of
from seqmoe.runtime.random_model.routing import Replay, ReplayedRouting
from seqmoe.runtime.random_model.weights import load_random
from seqmoe.spec.errors import InputError
from seqmoe.spec.system import SystemSpec


class RandomEngine(Engine):
    """See `seqmoe.runtime.engine.Engine`; a prompt is known by its tokens, which `prompts` gives.

    Raises `OutOfMemoryError` for a model that does not fit even without slots and caches.
    """

    def __init__(self, opened: Opened) -> None:
        self.traces, checkpoint = opened.traces, opened.checkpoint
        self._opened = opened
        super().__init__(checkpoint, loaded=load_random(checkpoint))
        family = checkpoint.family
        self._routing = ReplayedRouting(family.routers(self._loaded.model), family)
        self._replays: dict[Prompt, Replay] = {}

    def prompts(self, requests: tuple[int, ...], tokens: int) -> tuple[Prompt, ...]:
        """The prompts of requests of the traces by index, to be continued by ``tokens`` tokens; see `prompt_of`."""
        found = [prompt_of(self._opened, index, tokens) for index in requests]
        self._replays |= dict(found)
        return tuple(prompt for prompt, _ in found)

    def place(self, spec: SystemSpec, *arguments: object, **options: object) -> None:
        """See `Engine.place`; execution "graph" of a CPU compiles a model's own routers, so it is an `InputError`."""
        if spec.execution == "graph":
            raise InputError(
                "execution 'graph' on a CPU compiles the routers' own choice; with replayed routing use 'sync' or "
                "'eager'"
            )
        super().place(spec, *arguments, **options)  # type: ignore[arg-type]

    def generate_batch(
        self, prompts: list[list[int]], tokens: int, keep_logits: bool = False, on_token: OnToken | None = None
    ) -> list[Generation]:
        """See `Engine.generate_batch`; of prompts that `prompts` did not give the routers choose for themselves."""
        replays = [self._replays.get(tuple(prompt)) for prompt in prompts]
        known = [replay for replay in replays if replay is not None]
        if not self.checkpoint.family.static_cache and len({len(prompt) for prompt in prompts}) > 1:
            raise InputError(
                f"{self.checkpoint.family.name}: prompts of different lengths run one after another; replay one "
                "request at a time"
            )
        if len(known) == len(prompts):
            self._routing.begin(known)
        try:
            return super().generate_batch(prompts, tokens, keep_logits, on_token)
        finally:
            self._routing.end()
