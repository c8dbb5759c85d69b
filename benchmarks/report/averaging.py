"""Steps of DASO and of local SGD: tables and a picture in docs/results/daso.md."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks import show
from benchmarks.contenders import ALONE, AVERAGING, least_sent
from benchmarks.report import page, picture
from benchmarks.table.samples import Samples

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PART = page.part(page.RESULTS / "daso.md", "averaging.steps")
STORED = page.RESULTS / "averaging_steps.json"
PICTURE = page.IMAGES / "averaging_steps.png"
COLUMNS = (
    "nodes of 2 ranks",
    "step",
    "the formula",
    "by no communication",
    "a node sends a step",
    "it must send",
    "late merges",
)


def instead(stored: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the stored results, by numbers of nodes. A new result replaces the one with as many nodes."""
    known = {rig["nodes"]: rig for rig in (*stored, *new)}
    return [known[nodes] for nodes in sorted(known)]


def _samples(rig: Mapping[str, Any]) -> Samples:
    """Return a rig's quiet repetitions; all of them if other processes ran in most."""
    found = Samples(rig["seconds"], rig["others"])
    return Samples(rig["seconds"], [0.0] * found.of) if found.why_not else found


def formula(rig: Mapping[str, Any], name: str, alone: float) -> float:
    """Return the time that the formula gives for a contender's step, from that without communication."""
    wire = least_sent(rig["bytes"], rig["nodes"]) * 8 / (rig["mbit"] * 1e6)
    return AVERAGING[name].seconds(alone, wire)


def title(rig: Mapping[str, Any]) -> str:
    """Return a title that names the rig and the model."""
    return "; ".join(filter(None, (_what(rig), _disturbed(rig))))


def _what(rig: Mapping[str, Any]) -> str:
    size, kept = show.size_text(rig["bytes"]), len(_samples(rig).kept)
    return f"{rig['nodes']} nodes, {rig['mbit']} Mbit/s, {size} of parameters, median of {kept}"


def _disturbed(rig: Mapping[str, Any]) -> str:
    """Return a sentence if the times are upper bounds, with the reason; "": they are not."""
    why = Samples(rig["seconds"], rig["others"]).why_not
    return f"{why}, so that times are upper bounds" if why else ""


def rows(rig: Mapping[str, Any]) -> list[list[str]]:
    """Make the table's rows of one rig."""
    measured, made = _samples(rig), []
    alone = measured.cost(ALONE).value
    base = statistics.median(rig["sent"][ALONE])
    for name in rig["seconds"]:
        contender, cost = AVERAGING[name], measured.cost(name)
        row = [contender.name, page.estimate(cost, "s")]
        if name != ALONE:
            least = contender.bytes(least_sent(rig["bytes"], rig["nodes"]))
            sent = max(0.0, statistics.median(rig["sent"][name]) - base)
            row += [
                show.seconds_text(formula(rig, name, alone)),
                page.estimate(measured.ratio(name, ALONE), "x"),
                show.quantity(sent, "B"),
                show.quantity(least, "B"),
                str(rig["late"][name]) if "daso" in name else "",
            ]
        made.append(row + [""] * (len(COLUMNS) - len(row)))
    return made


def text(stored: Mapping[str, Any]) -> str:
    """Make the page's tables, one for each rig."""
    lines = [f"{page.host(stored['machine'], 'torch', 'mpi')}, one thread per rank, {stored['day']}.", ""]
    for rig in stored["rigs"]:
        lines.append(f"**{_what(rig)}.**")
        if disturbed := _disturbed(rig):
            lines.append(f"{disturbed.capitalize()}.")
        lines += ["", *page.rows(COLUMNS, rows(rig)), ""]
    return "\n".join(lines)


def paint(stored: Mapping[str, Any]) -> Figure:
    """Draw each contender's step, and a mark where the formula has it."""
    rigs = stored["rigs"]
    figure, [row] = picture.panels(1, len(rigs), (5.4 * len(rigs), 3.6), 110)
    for axes, rig in zip(row, rigs, strict=True):
        _paint(axes, rig)
    return figure


def _paint(axes: Axes, rig: Mapping[str, Any]) -> None:
    measured = _samples(rig)
    alone = measured.cost(ALONE).value
    names = list(rig["seconds"])
    values = [measured.cost(name).value * 1e3 for name in names]
    own = {True: picture.GREEN, False: picture.BLUE}
    colors = [picture.SILVER if name == ALONE else own["daso" in name] for name in names]
    axes.barh([AVERAGING[name].name for name in names], values, color=colors)
    given = [formula(rig, name, alone) * 1e3 for name in names]
    axes.plot(given, range(len(names)), "|", color=picture.TEXT, markersize=14, markeredgewidth=2)
    axes.axvline(alone * 1e3, color=picture.TEXT, linewidth=0.7, linestyle=":")
    texts = (show.seconds_text(value / 1e3) for value in values)
    picture.values(axes, zip(map(max, values, given), range(len(names)), texts, strict=True))
    axes.set_xlim(0, 1.2 * max(*values, *given))
    axes.invert_yaxis()
    axes.tick_params(labelsize=8)
    axes.set_title(f"{rig['nodes']} nodes, {rig['mbit']} Mbit/s", fontsize=10)
    axes.set_xlabel("ms a step (median); the mark is the formula's", fontsize=8)


def render(stored: Mapping[str, Any]) -> None:
    """Put the tables and the picture into the docs."""
    PART.write(text(stored))
    picture.draw(paint, stored, PICTURE)
