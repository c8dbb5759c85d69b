"""Steps of GradientFlow's ladder: tables and picture in its page, and a table in PowerSGD's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks import show
from benchmarks.contenders import ALONE, GRADIENTFLOW
from benchmarks.gradientflow.result import Row, Wire, from_json, wire_seconds
from benchmarks.report import page, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = (
    "2 nodes of 2 ranks",
    "step",
    "exposed",
    "speed by DDP's",
    "a node sends",
    "it must send",
    "ratio",
    "the wire needs",
    "loss",
)
TWIN_COLUMNS = ("strategy", "step", "with DDP's hook", "ratio", "loss", "with DDP's hook")
_OF_DDP = "DDP, "


_NAME = "gradientflow"
STORED, PICTURE = page.RESULTS / f"{_NAME}.json", page.IMAGES / f"{_NAME}.png"
PART, TWINS = (page.part(page.RESULTS / f"{name}.md", _NAME) for name in (_NAME, "powersgd"))


def wires(stored: Mapping[str, Any]) -> Sequence[Wire]:
    """List the stored results, the slowest wire first."""
    return sorted(map(from_json, stored["wires"]), key=lambda wire: wire.mbit)


def cells(row: Row, mbit: int) -> list[str]:
    """Make the texts of a contender's columns."""
    times = [(row.step, "s"), (row.exposed, "s"), (row.ratio, "x")]
    own = [row.name, *("" if value is None else page.estimate(value, unit) for value, unit in times)]
    if row.loss is None:
        return [*own, "", "", "", "", ""]
    wire = show.seconds_text(wire_seconds(row.least, mbit))
    bytes_ = [show.quantity(value, "B") for value in (row.sent, row.least)]
    return [*own, *bytes_, f"{row.sent / row.least:.3f}x", wire, f"{row.loss:.3f}"]


def title(wire: Wire) -> str:
    """Say what was measured."""
    return f"{wire.mbit} Mbit/s, {wire.steps} steps, median of {wire.counted}"


def disturbed(wire: Wire) -> str:
    """Say in how many repetitions other processes ran, and what follows."""
    said = f"Other processes ran in {wire.disturbed} of {wire.repetitions} repetitions"
    if wire.counted > wire.repetitions - wire.disturbed:
        return f"{said}, too many to leave these out: times are upper bounds."
    return f"{said}, which do not count."


def text(stored: Mapping[str, Any]) -> str:
    """Make a page's tables, one for each wire."""
    where = f"{page.host(stored['machine'], 'torch', 'mpi', 'python')}, one thread per rank, {stored['day']}."
    dense = ", ".join(f"{count} of {name}" for name, count in stored["dense_steps"].items())
    lines = [page.folded(f"{where} The first steps are dense and not measured: {dense}."), ""]
    for wire in wires(stored):
        made = page.rows(COLUMNS, [cells(row, wire.mbit) for row in wire.rows])
        lines += [page.folded(f"**{title(wire)}.** {disturbed(wire)}"), "", *made, ""]
    return "\n".join(lines)


def twins_text(stored: Mapping[str, Any]) -> str:
    """Make the table of the contenders that DDP has as a hook of the same name, on the slowest wire."""
    wire = wires(stored)[0]
    of_ddp = {row.name.removeprefix(_OF_DDP): row for row in wire.rows if row.name.startswith(_OF_DDP)}
    lines = []
    for own in wire.rows:
        if own.name in of_ddp:
            pair = own, of_ddp[own.name]
            steps = [one.step.value for one in pair]
            times = [show.seconds_text(step) for step in steps]
            losses = [f"{one.loss:.3f}" for one in pair]
            lines.append([own.name, *times, f"{steps[0] / steps[1]:.2f}", *losses])
    return "\n".join([f"{title(wire)}.", "", *page.rows(TWIN_COLUMNS, lines), ""])


_COLORS = {
    one.name: picture.BLUE if one.library == "roundelay" else picture.ORANGE for one in GRADIENTFLOW.values()
} | {GRADIENTFLOW[ALONE].name: picture.QUIET}
_STYLES = {  # by kind: color, marker, size
    "Roundelay": (picture.BLUE, "o", 8.0),
    "PyTorch's DDP over Gloo": (picture.ORANGE, "o", 8.0),
    "no communication": (picture.QUIET, "o", 8.0),
    "the wire alone": (picture.TEXT, "|", 8.0),
}
_LINE_INCH = 0.36


def fastest(rows: Sequence[Row]) -> str:
    """Say whose step takes the least time, of those that communicate."""
    best = min((row for row in rows if row.loss is not None), key=lambda row: row.step.value)
    return f"fastest: {best.name}, {show.seconds_text(best.step.value)}"


def _paint(axes: Axes, wire: Wire) -> None:
    for place, row in enumerate(wire.rows):
        color, step = _COLORS[row.name], row.step
        axes.hlines(place, step.low or step.value, step.high or step.value, color=color, linewidth=3)
        axes.plot(step.value, place, "o", color=color, markersize=7)
        if row.loss is not None:
            picture.point(axes, (wire_seconds(row.least, wire.mbit), place), (picture.TEXT, "|", 12))
        axes.annotate(
            show.seconds_text(step.value),
            (step.high or step.value, place),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=picture.TEXT,
        )
    picture.log_seconds(axes, len(wire.rows))
    steps = [row.step.value for row in wire.rows]
    axes.set_xlim(min(steps) / 2.5, max(steps) * 2)
    axes.set_title(f"{wire.mbit} Mbit/s, {fastest(wire.rows)}", fontsize=10, color=picture.TEXT)


def paint(stored: Mapping[str, Any]) -> Figure:
    """Draw a panel for each wire, with a line for each contender, on a log scale."""
    every = wires(stored)
    lines = max(len(wire.rows) for wire in every)
    size = 5.6 * len(every) + 1.6, _LINE_INCH * lines + 1.5
    figure, [row] = picture.panels(1, len(every), size, 110, sides=("top", "right", "left"), sharey=True)
    for axes, wire in zip(row, every, strict=True):
        _paint(axes, wire)
    row[0].set_yticks(range(lines), [one.name for one in every[0].rows], fontsize=9)
    figure.supxlabel("time of a step, log scale: further left is faster", fontsize=9, color=picture.TEXT)
    picture.styles_legend(figure, row[0], _STYLES)
    return figure


def render(stored: Mapping[str, Any]) -> None:
    """Put the tables and the picture into the page, and the twins into PowerSGD's."""
    PART.write(text(stored))
    TWINS.write(twins_text(stored))
    picture.draw(paint, stored, PICTURE)
