"""`seqmoe simulate`: one simulated cell, the simulator's constants, and how far it is from what the paper prints."""

from __future__ import annotations

from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from seqmoe.cli.base import JsonFlag, app, err, out, print_json
from seqmoe.spec.errors import InputError

if TYPE_CHECKING:
    from seqmoe.harness.emulated_lane import EmulatedPoint
    from seqmoe.simulate.calibrate.errors import Order, Summary

simulate_app = typer.Typer(no_args_is_help=True, help="Simulate systems on machines that are not at hand.")
app.add_typer(simulate_app, name="simulate")


@simulate_app.command("cell")
def simulate_cell(
    model: Annotated[str, typer.Option(help="A name of suites/models.")],
    gpu: Annotated[str, typer.Option(help="A name of suites/hardware.")],
    system: Annotated[str, typer.Option(help="One of our systems, or a baseline by its name in the paper.")] = "seqmoe",
    residency: Annotated[float, typer.Option(help="Share of all experts on the device.")] = 0.45,
    batch: Annotated[int, typer.Option(min=1, max=256, help="Requests that run together.")] = 1,
    decode_tokens: Annotated[int, typer.Option(min=1, help="Tokens that each decodes.")] = 576,
    seed: Annotated[int, typer.Option(min=0, help="Of the synthetic routing.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Simulate one system on synthetic routing: tok/s, time to first token, hit rate, and where the time goes."""
    from seqmoe.simulate.timeline.cell import Simulator
    from seqmoe.spec.calibration import load_calibration
    from seqmoe.spec.hardware import load_hardware
    from seqmoe.spec.model import load_model
    from seqmoe.spec.paths import find_home

    if not 0 < residency <= 1:
        raise InputError(f"--residency {residency:g}: must lie in (0, 1], for example 0.45")
    home = find_home()
    simulator = Simulator(home, load_calibration(home), seed)
    held = 1.0 if system in ("full", "eager", "sync") else residency
    chosen, hardware = load_model(home, model), load_hardware(home, gpu)
    with err.status(f"simulating {system} on {hardware.title}"):
        found = simulator.run(system, chosen, hardware, held, batch, decode_tokens)
    shares = {name: value / found.time.total for name, value in asdict(found.time).items()}
    if as_json:
        print_json(
            {"lane": "simulated", "routing": "synthetic routing", "decode_tok_s": found.decode_tok_s}
            | {"ttft_s": found.ttft_s, "hit_rate": found.counts.hit_rate, "link_experts_per_layer": found.link}
            | {"step_s": found.time.total, "breakdown": shares}
        )
        return
    out.print(f"{found.decode_tok_s:.1f} tok/s, {found.ttft_s:.2f} s to the first token (simulated, synthetic routing)")
    out.print(f"hit rate {found.counts.hit_rate:.1%}; the link moves {found.link:.2f} experts a layer of computation")
    out.print(", ".join(f"{name} {share:.1%}" for name, share in shares.items() if share > 0))


@simulate_app.command("fit")
def simulate_fit(
    write: Annotated[bool, typer.Option("--write", help="Put the constants into the calibration's file.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Fit the constants anew, to the inputs that the calibration declares; takes some two minutes."""
    from seqmoe.simulate.calibrate.file import write_constants
    from seqmoe.simulate.calibrate.fit import fit
    from seqmoe.spec.calibration import load_calibration
    from seqmoe.spec.paths import find_home

    home = find_home()
    before = load_calibration(home)
    with err.status("fitting"):
        after = fit(home, before)
    if write:
        write_constants(home.suites / "simulation" / "calibration.toml", after)
    if as_json:
        print_json({constant.name: constant.value for constant in after.constant})
        return
    table = Table(box=None)
    for heading in ("constant", "was", "is", "unit", "fitted on"):
        table.add_column(heading)
    for old, new in zip(before.constant, after.constant, strict=True):
        table.add_row(new.name, f"{old.value:g}", f"{new.value:g}", new.unit, ", ".join(new.fitted_on))
    out.print(table)


@simulate_app.command("errors")
def simulate_errors(
    seed: Annotated[int, typer.Option(min=0, help="Of the synthetic routing.")] = 0, as_json: JsonFlag = False
) -> None:
    """Simulate every bar of figure 6 and set it beside the print, fitted and held-out bars apart.

    And every emulated cell of its records here, beside what our own runtime measured.
    """
    from seqmoe.harness.emulated_lane import emulated_points, emulated_records
    from seqmoe.simulate.calibrate.errors import judge, order, summaries
    from seqmoe.spec.calibration import load_calibration
    from seqmoe.spec.paths import find_home

    home = find_home()
    with err.status("simulating"):
        judged = judge(home, load_calibration(home), seed)
    with err.status("the emulated lane"):
        emulated = emulated_points(home, emulated_records(home))
    found, orders = summaries(judged), {kind: order(judged, kind) for kind in ("decode", "ttft")}
    if as_json:
        bars = [
            asdict(one.point.bar) | {"simulated": one.simulated, "error": one.error, "fitted": one.fitted}
            for one in judged
        ]
        orders_json = {kind: asdict(value) for kind, value in orders.items()}
        ours = [asdict(point) | {"error": point.error} for point in emulated]
        print_json({"errors": [asdict(one) for one in found], "order": orders_json, "bars": bars, "emulated": ours})
        return
    out.print(_table(found))
    for kind, value in orders.items():
        out.print(_order(kind, value))
    _print_emulated(emulated)


def _table(found: list[Summary]) -> Table:
    table = Table(title="simulated against printed, relative error", title_justify="left", box=None)
    for heading in ("bars", "system"):
        table.add_column(heading)
    for heading in ("count", "median", "worst", "bias"):
        table.add_column(heading, justify="right")
    for one in found:
        kind = f"{one.kind}, {'fitted' if one.fitted else 'held out'}"
        table.add_row(kind, one.system, str(one.bars), f"{one.median:.1%}", f"{one.worst:.1%}", f"{one.bias:+.1%}")
    return table


def _order(kind: str, value: Order) -> str:
    return (
        f"order of systems, {kind}: right in {value.pairs_right} of {value.pairs} pairs, "
        f"and in all pairs of {value.cells_right} of {value.cells} cells"
    )


def _print_emulated(points: list[EmulatedPoint]) -> None:
    out.print()
    if not points:
        out.print("emulated lane: no records of figure 6 here; `nox -s reproduce-fig6` makes them")
        return
    table = Table(
        title="emulated lane: simulated against our own runtime, nothing fitted", title_justify="left", box=None
    )
    for heading in ("system", "predictor"):
        table.add_column(heading)
    for heading in ("held", "share of full load", "simulated", "error", "hits", "simulated"):
        table.add_column(heading, justify="right")
    for one in sorted(points, key=lambda point: (point.system, point.predictor, point.residency)):
        table.add_row(
            one.system, one.predictor, f"{one.residency:.0%}", f"{one.measured:.1%}", f"{one.simulated:.1%}",
            f"{one.error:+.1%}", f"{one.measured_hits:.1%}", f"{one.simulated_hits:.1%}",
        )  # fmt: skip
    out.print(table)
    errors = sorted(abs(point.error) for point in points)
    out.print(f"median error {median(errors):.1%}, worst {errors[-1]:.1%}, over {len(errors)} cells")
