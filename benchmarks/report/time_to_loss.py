"""The table and the picture of docs/results/time_to_loss.md."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks import show
from benchmarks.contenders import EPOCHS, TIME_TO_LOSS
from benchmarks.report import page, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STORED = page.RESULTS / "time_to_loss.json"
PART = page.part(page.RESULTS / "time_to_loss.md", "time_to_loss")
PICTURE = page.IMAGES / "time_to_loss.png"
COLUMNS = ("wire", "", "a step", "loss at the end", "range", "as good as dense after", "bf16's time")
_YARDSTICK, _PEER = "dense", "bf16"
_COLORS = (
    *(picture.GRAY, picture.DARK_BLUE, picture.BLUE, picture.GREEN, picture.OLIVE, picture.PURPLE),
    *(picture.TEXT, picture.ORANGE, picture.RED, picture.SILVER, picture.SAND, picture.TEAL),
)
Wire = Mapping[str, Any]


def _runs(wire: Wire, contender: str) -> list[dict[str, Any]]:
    return [run for run in wire["runs"] if run["contender"] == contender]


def target(wire: Wire) -> float:
    """Return the loss that is as good as dense training's: that of its worst seed at the end."""
    return max(float(run["losses"][-1]) for run in _runs(wire, _YARDSTICK))


def mean_curve(runs: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Return the seconds of training and the test loss after each epoch, as means of the seeds."""
    seconds = zip(*(itertools.accumulate(run["seconds"]) for run in runs), strict=True)
    losses = zip(*(run["losses"] for run in runs), strict=True)
    return list(zip(map(statistics.mean, seconds), map(statistics.mean, losses), strict=True))


def time_to_dense(wire: Wire, contender: str) -> float | None:
    """Return the seconds after which the seeds' mean loss stays as good as dense's. None: it does not."""
    found = None
    for seconds, loss in mean_curve(_runs(wire, contender)):
        if loss > target(wire):
            found = None
        elif found is None:
            found = seconds
    return found


def rows(found: Mapping[str, Any]) -> list[list[str]]:
    """Make the table's rows."""
    return [
        _row(wire, name, found["steps"])
        for wire in found["wires"]
        for name in TIME_TO_LOSS
        if _runs(wire, name)
    ]


def _row(wire: Wire, name: str, steps: int) -> list[str]:
    runs = _runs(wire, name)
    step = statistics.median(seconds for run in runs for seconds in run["seconds"]) * EPOCHS / steps
    ends = [run["losses"][-1] for run in runs]
    own, peer = time_to_dense(wire, name), time_to_dense(wire, _PEER)
    return [
        f"{wire['mbit']} Mbit/s",
        TIME_TO_LOSS[name].name,
        show.seconds_text(step),
        f"{statistics.mean(ends):.4f}",
        f"{min(ends):.4f} to {max(ends):.4f}",
        show.seconds_text(own) if own is not None else "not reached",
        f"{own / peer:.2f}x" if own is not None and peer is not None else "",
    ]


def text(found: Mapping[str, Any]) -> str:
    """Make the page's part."""
    seeds = len(_runs(found["wires"][0], _YARDSTICK))
    machine = page.host(found["machine"], "torch", "mpi", "python")
    lines = [page.folded(f"{machine}, {found['day']}; {found['steps']} steps, {seeds} seeds."), ""]
    for wire in found["wires"]:
        line = f"At {wire['mbit']} Mbit/s a loss of {target(wire):.4f} is as good as dense."
        lines += [line, ""]
    return "\n".join([*lines, *page.rows(COLUMNS, rows(found)), "", *_settings(), ""])


def _settings() -> list[str]:
    """Return the strategies' texts, which the names leave out."""
    ours = (one for one in TIME_TO_LOSS.values() if one.library == "roundelay")
    return [f"- *{one.name}*: `{one.setting}`" for one in ours if one.name != one.setting]


def render(found: Mapping[str, Any]) -> None:
    """Write the page's part and the picture."""
    PART.write(text(found))
    picture.draw(paint, found, PICTURE)


def paint(found: Mapping[str, Any]) -> Figure:
    """Draw the mean test loss over the seconds of training, a panel for each wire."""
    wires = found["wires"]
    figure, [panels] = picture.panels(1, len(wires), (5.2 * len(wires), 4.2), 110, sharey=True)
    for axes, wire in zip(panels, wires, strict=True):
        for name, color in zip(TIME_TO_LOSS, _COLORS, strict=True):
            _curve(axes, _runs(wire, name), TIME_TO_LOSS[name].name, color)
        axes.axhline(target(wire), color=picture.PALE, zorder=0)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(f"{wire['mbit']} Mbit/s", fontsize=9)
        axes.set_xlabel("seconds of training", fontsize=8)
    panels[0].set_ylabel("test loss", fontsize=8)
    picture.legend_above(figure, 4)
    return figure


def _curve(axes: Axes, runs: Sequence[Mapping[str, Any]], label: str, color: str) -> None:
    if runs:
        style = "--" if label.startswith("DDP") else "-"
        axes.plot(*zip(*mean_curve(runs), strict=True), style, color=color, label=label, linewidth=1.3)
