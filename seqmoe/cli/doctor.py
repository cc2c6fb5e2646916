"""`seqmoe doctor`: what this machine can reproduce, and what each missing lane needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from seqmoe.cli.base import JsonFlag, app, err, out, print_json

if TYPE_CHECKING:
    from seqmoe.harness.doctor.examination import Examination
    from seqmoe.harness.doctor.gpus import GpuState
    from seqmoe.harness.doctor.lanes import LaneState
    from seqmoe.harness.doctor.suites import Need, SuiteState

# What more than a few of stand in the way is told by --json.
_NEEDS = 3


@app.command()
def doctor(as_json: JsonFlag = False) -> None:
    """Say what this machine can reproduce: lanes, suites, baselines, GPUs; and what is missing for the rest."""
    from seqmoe.harness.doctor.examination import examine
    from seqmoe.spec.paths import find_home

    with err.status("looking at this machine"):
        found = examine(find_home())
    if as_json:
        print_json(found.as_dict())
        return
    _machine(found)
    out.print("\n[bold]Lanes[/bold]")
    for lane in found.lanes:
        _lane(lane)
    out.print("\n[bold]Suites[/bold] (cells that can run here, of all)")
    for suite in found.suites:
        _suite(suite)
    out.print("\n[bold]Tables[/bold]\n  1  seqmoe table1\n  2  seqmoe table2", highlight=False)
    out.print("\n[bold]Baselines[/bold]")
    rows = _grid()
    for baseline in found.baselines:
        rows.add_row(f"  {escape(baseline.overview.name)}", escape(baseline.overview.state))
    out.print(rows, highlight=False)


def _machine(found: Examination) -> None:
    machine = found.machine
    rows = _grid()
    cpu = machine["cpu"]
    rows.add_row("machine", f"{escape(cpu['model'])}, {cpu['usable_cores']} cores, {machine['memory_gib']} GiB")
    limit = found.pinned.memlock_gib
    lock = "no limit on locked memory" if limit is None else f"{limit} GiB may be locked (ulimit -l)"
    rows.add_row("host memory", f"{found.pinned.available_gib} GiB available ({found.pinned.source}); {lock}")
    packages = machine["packages"]
    told = ", ".join(f"{name} {packages[name]}" for name in ("torch", "transformers", "triton") if name in packages)
    rows.add_row("software", f"Python {machine['python']}, {told}")
    if not found.gpus:
        rows.add_row("GPU", f"none: {escape(found.no_gpu)}")
    out.print(rows, highlight=False)
    for gpu in found.gpus:
        _gpu(gpu)


def _gpu(gpu: GpuState) -> None:
    rows = _grid()
    about = f"{escape(gpu.name)}, {gpu.memory_gib} GiB, compute capability {gpu.compute_capability}"
    rows.add_row(f"GPU {gpu.index}", about)
    rows.add_row("  driver", f"{gpu.driver or 'unknown'}, CUDA {gpu.cuda}")
    if gpu.pcie is not None and gpu.pcie_most is not None:
        (generation, width), (most, lanes) = gpu.pcie, gpu.pcie_most
        rows.add_row("  link", f"PCIe {generation}.0 x{width} as negotiated, at most {most}.0 x{lanes}")
    else:
        rows.add_row("  link", "unknown: neither the management library nor the kernel tells")
    rate = (
        f"{gpu.link_idle} GB/s idle, {gpu.link_contended} GB/s contended"
        if gpu.link_idle is not None
        else f"not measured: {escape(gpu.bandwidth_note)}"
    )
    rows.add_row("  bandwidth", rate)
    if not gpu.reads_host_memory:
        rows.add_row("  [red]missing[/red]", "kernels cannot read pinned host memory: no offloading on this device")
    rows.add_row("  as in the paper", f"{gpu.profile}{'' if gpu.same else ' is nearest (suites/hardware)'}")
    for one in gpu.models:
        if one.largest:
            shares = ", ".join(f"{legal:.0%}" for legal in one.residencies) or "none of the paper's"
            share = f"up to {one.largest:.0%} of the experts"
            rows.add_row(f"  {one.model}", f"{shares}; {share}, {one.host_bytes / 2**30:.1f} GiB pinned on the host")
        else:
            rows.add_row(f"  {one.model}", f"does not fit: {one.reason}")
    out.print(rows, highlight=False)


def _lane(lane: LaneState) -> None:
    out.print(
        f"  {'ready' if lane.ready else 'missing':8}[bold]{lane.name}[/bold]  {escape(lane.gives)}", highlight=False
    )
    for need in lane.needs:
        _need(need)


def _suite(suite: SuiteState) -> None:
    figure = f"figure {suite.figure}, " if suite.figure.isdigit() else ""
    out.print(f"  [bold]{suite.name}[/bold]  {figure}{escape(suite.title)}: {suite.command}", highlight=False)
    if suite.wrong:
        out.print(f"    [red]wrong[/red] {escape(suite.wrong)}", highlight=False)
    for name, profile in suite.profiles.items():
        lanes = ", ".join(f"{lane} {can} of {of}" for lane, (can, of) in profile.lanes.items())
        out.print(f"    {name:6} {profile.ready} of {profile.cells}: {lanes}", highlight=False)
    needs = {(need.reason, need.command): need for profile in suite.profiles.values() for need in profile.needs}
    shown = [need for need in needs.values() if need.command][:_NEEDS]
    for need in shown:
        _need(need)
    if len(needs) > len(shown):
        out.print(f"      and {len(needs) - len(shown)} reasons more: seqmoe doctor --json", highlight=False)


def _need(need: Need) -> None:
    command = f": [cyan]{escape(need.command)}[/cyan]" if need.command else ""
    out.print(f"      {escape(need.reason)}{command}", highlight=False)


def _grid() -> Table:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(min_width=11)
    rows.add_column(overflow="fold")
    return rows
