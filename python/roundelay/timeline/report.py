"""The summary of a trace, for a terminal."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from roundelay.timeline import analysis
from roundelay.timeline.analysis import Step
from roundelay.timeline.events import Trace

_TIMES = ("duration", "computing", "backward", "under_way", "exposed")  # fields of Step
_TIME_COLUMNS = ("time", "computing", "backward", "under way", "exposed", "hidden")
_LONG = 24  # steps; a longer table shows the first and the last ones


def time_text(microseconds: float) -> str:
    """Format with three digits, in us, ms or s."""
    for limit, divisor, unit in ((1e3, 1.0, "us"), (1e6, 1e3, "ms")):
        if abs(microseconds) < limit:
            return f"{microseconds / divisor:.3g} {unit}"
    return f"{microseconds / 1e6:.2f} s"


def bytes_text(count: float) -> str:
    """Format in binary units."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def headline(trace: Trace, steps: Sequence[Step]) -> str:
    """Describe the job in one line."""
    ranks = len(trace.ranks)
    parts = [
        f"{ranks} rank{'s' if ranks != 1 else ''}",
        f"step {time_text(analysis.mean(steps, 'duration'))}",
    ]
    hidden = analysis.hidden_share(steps)
    if hidden is None:
        parts.append("no communication")
    else:
        parts.append(f"communication under way {time_text(analysis.mean(steps, 'under_way'))}")
        parts.append(f"of it exposed {time_text(analysis.mean(steps, 'exposed'))}: {hidden:.0%} hidden")
    return ", ".join(parts)


def fusion_line(trace: Trace, steps: Sequence[Step]) -> str:
    """Describe fusion on the first rank: the other ranks have the same operations."""
    of_rank = [s for s in steps if s.rank == trace.ranks[0]]
    tensors, operations = sum(s.tensors for s in of_rank), sum(s.operations for s in of_rank)
    size = sum(s.bytes for s in of_rank)
    if not operations:
        return "fusion: no operations"
    return (
        f"fusion: {tensors} tensors in, {operations} operations out ({tensors / operations:.1f} in each), "
        f"{bytes_text(size)}, {bytes_text(size / operations)} an operation"
    )


def levels_line(trace: Trace) -> str:
    """Describe the levels of allreduces, as means over ranks; "" if they had only one."""
    ranks = analysis.levels(trace)
    if not ranks:
        return ""
    inside, between, both, overlapped = (
        time_text(statistics.fmean(getattr(one, field) for one in ranks))
        for field in ("inside", "between", "both", "overlapped")
    )
    return (
        f"levels: {inside} inside the nodes, {between} between them, both at once {both}, "
        f"of it {overlapped} for two allreduces"
    )


def technique_lines(trace: Trace, verbose: bool) -> list[str]:
    """Describe each technique on the first rank."""
    return [
        f"technique {use.technique}: {use.operations} operations, {bytes_text(use.bytes)} of gradients, "
        f"{bytes_text(use.called_bytes)} sent"
        for use in analysis.techniques(trace, verbose)
    ]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _step_cells(steps: Sequence[Step]) -> list[str]:
    hidden = analysis.hidden_share(steps)
    times = [time_text(analysis.mean(steps, field)) for field in _TIMES]
    return [*times, "-" if hidden is None else f"{hidden:.0%}"]


def _rank_table(trace: Trace, steps: Sequence[Step]) -> Table:
    table = _table("Ranks (means of a step)", "rank", "steps", *_TIME_COLUMNS, "was last")
    last = {s.rank: s for s in analysis.stragglers(trace)}
    for rank in trace.ranks:
        own = [s for s in steps if s.rank == rank]
        late = last.get(rank)
        words = (
            f"{late.times}x, median {time_text(late.median)}, at most {time_text(late.longest)}"
            if late
            else "-"
        )
        table.add_row(str(rank), str(len(own)), *_step_cells(own), words)
    return table


def _step_table(steps: Sequence[Step]) -> Table:
    columns = ("step", *_TIME_COLUMNS, "tensors", "operations", "bytes")
    table = _table("Steps (means over ranks)", *columns)
    indices = sorted({s.index for s in steps})
    shown = indices if len(indices) <= _LONG else [*indices[: _LONG // 2], *indices[-_LONG // 2 :]]
    for position, index in enumerate(shown):
        if position and index != shown[position - 1] + 1:
            table.add_row("...", *[""] * (len(columns) - 1))
        own = [s for s in steps if s.index == index]
        counts = [f"{analysis.mean(own, field):.0f}" for field in ("tensors", "operations")]
        table.add_row(str(index), *_step_cells(own), *counts, bytes_text(analysis.mean(own, "bytes")))
    return table


def print_report(trace: Trace, steps: Sequence[Step], console: Console, verbose: bool) -> None:
    """Print the summary of a job: headline, warnings, fusion, ranks, steps. verbose: as in techniques()."""
    console.print(headline(trace, steps), highlight=False)
    if trace.truncated:
        console.print(
            "the file's end is missing: the job died, or still runs", style="yellow", highlight=False
        )
    if trace.dropped:
        console.print(
            f"{trace.dropped} events are missing: buffers were full", style="yellow", highlight=False
        )
    console.print(fusion_line(trace, steps), highlight=False)
    if line := levels_line(trace):
        console.print(line, highlight=False)
    for text in [*technique_lines(trace, verbose), *analysis.pools(trace), *analysis.changes(trace)]:
        console.print(text, highlight=False, markup=False)
    console.print(_rank_table(trace, steps))
    console.print(_step_table(steps))
