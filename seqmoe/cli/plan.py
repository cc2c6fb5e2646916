"""`seqmoe plan`: what to run on a machine, and what to expect of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from seqmoe.cli.base import JsonFlag, app, err, out, print_json
from seqmoe.spec.errors import InputError

if TYPE_CHECKING:
    from seqmoe.simulate.advice.answer import Answer
    from seqmoe.simulate.advice.options import Option


@app.command()
def plan(
    gpu: Annotated[str, typer.Option(help="A name of suites/hardware, or its beginning.")],
    model: Annotated[str, typer.Option(help="A name of suites/models, or its beginning.")],
    batch: Annotated[int, typer.Option(min=1, max=256, help="Requests that run together.")] = 1,
    ram: Annotated[float | None, typer.Option(help="The host's memory in GB, to check that the experts fit.")] = None,
    decode_tokens: Annotated[int, typer.Option(min=1, help="Tokens that each request decodes.")] = 576,
    as_json: JsonFlag = False,
) -> None:
    """Say which system, residency and settings are fastest on a machine, how fast, how surely, and what limits it.

    Simulated; exit code 1 where nothing fits.
    """
    from seqmoe.simulate.advice.answer import answer
    from seqmoe.simulate.advice.options import Question
    from seqmoe.spec.declared import declared_name
    from seqmoe.spec.hardware import load_hardware
    from seqmoe.spec.model import load_model
    from seqmoe.spec.paths import find_home

    if ram is not None and not ram > 0:
        raise InputError(f"--ram {ram:g}: must be positive, for example 128")
    home = find_home()
    hardware = load_hardware(home, declared_name(home.suites / "hardware", gpu, "hardware profile"))
    chosen = load_model(home, declared_name(home.suites / "models", model, "model"))
    with err.status("simulating") as status:
        found = answer(
            home,
            Question(chosen, hardware, batch, decode_tokens, ram),
            lambda name: status.update(f"simulating {name}"),
        )
    if as_json:
        print_json(found.as_dict() | {"command": _command(found)})
    else:
        _print(found)
    if found.best is None:
        raise typer.Exit(1)


def _print(found: Answer) -> None:
    asked = found.question
    requests = "one request" if asked.batch == 1 else f"{asked.batch} requests together"
    lines = [f"{asked.model.title} on {asked.hardware.title}, {requests}: simulated, on synthetic routing."]
    lines += _about(found.best, found) if found.best else ["Nothing can run."]
    for line in lines:
        out.print(line, highlight=False, soft_wrap=True)
    if found.best:
        out.print(_systems(found))
    for option in found.options:
        if option.obstacle:
            out.print(f"Not {option.system}: {option.obstacle}.", highlight=False, soft_wrap=True)
    if found.by_residency:
        speeds = ", ".join(f"{place:.0%} {speed:.1f}" for place, speed in found.by_residency)
        out.print(f"tok/s by the share of experts on the GPU: {speeds}", highlight=False, soft_wrap=True)
    for caveat in found.caveats():
        out.print(f"Beyond what was checked: {caveat}.", highlight=False, soft_wrap=True)
    if found.best:
        out.print(f"Run it: {_command(found)}", highlight=False, soft_wrap=True, markup=False)


def _about(best: Option, found: Answer) -> list[str]:
    from seqmoe.simulate.advice.limit import LIMITS
    from seqmoe.simulate.advice.trust import ANY

    assert best.found is not None and best.decode is not None and best.ttft is not None and found.memory is not None
    (low, high), (soon, late), memory = best.decode_range, best.ttft_range, found.memory
    held = f" with {best.residency:.1%} of the experts on the GPU, the most that fit" if best.system != "full" else ""
    lines = [
        f"Fastest: {best.system}{held}.",
        f"Expect {best.found.decode_tok_s:.1f} tok/s ({low:.0f} to {high:.0f}), and the first token of a prompt of "
        f"1,024 after {best.found.ttft_s:.2f} s ({soon:.2f} to {late:.2f}).",
        f"Hit rate {best.found.counts.hit_rate:.1%}. The limit is {LIMITS[best.limit]}; "
        f"the link is busy for {best.link_busy:.0%} of a step.",
    ]
    if best.system == "seqmoe":
        chosen = best.tuned.settings
        gain = f"{best.tuned.gain:.1%} faster than the paper's" if best.tuned.gain else "the paper's; others gain < 2%"
        lines.append(
            f"Settings: k' = k + {chosen.extra}, c = {chosen.horizon}, predictors: {chosen.predictors} ({gain})."
        )
    taken = memory.memory - memory.reserve - memory.for_experts
    lines.append(
        f"GPU memory: {memory.memory / 1e9:.1f} GB = {memory.for_experts / 1e9:.1f} experts + {taken / 1e9:.1f} others "
        f"(non-experts {memory.others / 1e9:.2f}, caches {memory.caches / 1e9:.2f}, predictor "
        f"{memory.predictor / 1e9:.2f}) + {memory.reserve / 1e9:.1f} reserve."
    )
    answers = {None: "give --ram to check", True: "fits", False: "does not fit"}
    lines.append(f"Host memory: {best.host_bytes / 1e9:.1f} GB for experts; {answers[found.fits_host]}.")
    whose = "all systems, since the paper has none of it" if best.decode.of == ANY else best.system
    lines.append(
        f"Ranges hold 8 of 10 of the paper's bars that the simulator was not fitted to ({whose}: {best.decode.bars} "
        f"decode bars, median error {best.decode.median:.0%}; TTFT {best.ttft.median:.0%})."
    )
    return lines


def _systems(found: Answer) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for index, heading in enumerate(("system", "held", "tok/s", "range", "TTFT (s)", "hits", "limit", "error")):
        table.add_column(heading, justify="right" if 0 < index < 6 else "left", overflow="fold")
    for option in found.options:
        if option.found is None or option.decode is None:
            continue
        low, high = option.decode_range
        whose = "" if option.decode.of == option.system else f" ({option.decode.of})"
        table.add_row(
            option.system, f"{option.residency:.0%}", f"{option.found.decode_tok_s:.1f}", f"{low:.0f}-{high:.0f}",
            f"{option.found.ttft_s:.2f}", f"{option.found.counts.hit_rate:.0%}", option.limit,
            f"{option.decode.median:.0%}{whose}",
        )  # fmt: skip
    return table


def _command(found: Answer) -> str:
    from seqmoe.harness.selection import find_suite
    from seqmoe.spec.paths import find_home
    from seqmoe.spec.system import SYSTEMS

    best, asked = found.best, found.question
    if best is None:
        return ""
    ours = best.system in SYSTEMS
    if not ours or asked.model.name in {cell.model for cell in find_suite(find_home(), "fig6").cells("full")}:
        device = " --device cuda" if ours else ""
        return f"seqmoe bench fig6 --profile full{device} --only 'system={best.system},model={asked.model.name}'"
    held = "" if best.system == "full" else f" --residency {best.residency:.3f} --host pinned"
    return f"seqmoe generate --model {asked.model.name} --system {best.system}{held} --dtype auto --prompt TEXT"
