"""Writes the results into docs/techniques/daso.md and local_sgd.md."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import show
from benchmarks.averaging.contenders import ALONE, CONTENDERS, message
from benchmarks.table.markdown import rows, with_table
from benchmarks.table.result import Estimate
from benchmarks.table.samples import Samples

_DOCS = Path(__file__).resolve().parents[2] / "docs"
_PAGES = {
    "daso": _DOCS / "techniques" / "daso.md",
    "local": _DOCS / "techniques" / "local_sgd.md",
}
STEPS = _DOCS / "techniques" / "averaging_steps.json"
TRAINING = _DOCS / "techniques" / "averaging_training.json"
STEP_PICTURE = _DOCS / "images" / "averaging_steps.png"
TRAINING_PICTURES = {
    "daso": _DOCS / "images" / "daso_training.png",
    "local": _DOCS / "images" / "local_sgd_training.png",
}
_STEP_BEGIN = "<!-- python -m benchmarks.averaging.steps --docs writes from here -->"
_TRAINING_BEGIN = "<!-- python -m benchmarks.averaging.training --docs writes from here -->"
STEP_COLUMNS = (
    "nodes of 2 ranks",
    "step",
    "the formula",
    "by no communication",
    "a node sends a step",
    "it must send",
    "late merges",
)
TRAINING_COLUMNS = (
    "task", "strategy", "seeds", "test loss", "range", "accuracy", "range", "models sent a step"
)  # fmt: skip


def read(path: Path) -> dict[str, Any]:
    """Read stored results."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def instead(stored: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the stored results, by numbers of nodes. A new result replaces the one with as many nodes."""
    known = {rig["nodes"]: rig for rig in (*stored, *new)}
    return [known[nodes] for nodes in sorted(known)]


# -- steps


def samples(rig: Mapping[str, Any]) -> Samples:
    """Return a rig's quiet repetitions; all of them if other processes ran in most."""
    found = Samples(rig["seconds"], rig["others"])
    return Samples(rig["seconds"], [0.0] * found.of) if found.why_not else found


def formula(rig: Mapping[str, Any], name: str, alone: float) -> float:
    """Return the time that the formula gives for a contender's step, from that without communication."""
    wire = message(rig["bytes"], rig["nodes"]) * 8 / (rig["mbit"] * 1e6)
    return CONTENDERS[name].seconds(alone, wire)


def step_title(rig: Mapping[str, Any]) -> str:
    """Return a title that names the rig and the model."""
    return "; ".join(filter(None, (_what(rig), _disturbed(rig))))


def _what(rig: Mapping[str, Any]) -> str:
    size, kept = show.size_text(rig["bytes"]), len(samples(rig).kept)
    return f"{rig['nodes']} nodes, {rig['mbit']} Mbit/s, {size} of parameters, median of {kept}"


def _disturbed(rig: Mapping[str, Any]) -> str:
    """Return a sentence if the times are upper bounds, with the reason; "": they are not."""
    why = Samples(rig["seconds"], rig["others"]).why_not
    return f"{why}, so that times are upper bounds" if why else ""


def step_rows(rig: Mapping[str, Any]) -> list[list[str]]:
    """Make the table's rows of one rig."""
    measured, made = samples(rig), []
    alone = measured.cost(ALONE).value
    base = statistics.median(rig["sent"][ALONE])
    for name in rig["seconds"]:
        contender, cost = CONTENDERS[name], measured.cost(name)
        row = [contender.name, _estimate(cost, "s")]
        if name != ALONE:
            least = contender.bytes(message(rig["bytes"], rig["nodes"]))
            sent = max(0.0, statistics.median(rig["sent"][name]) - base)
            row += [
                show.seconds_text(formula(rig, name, alone)),
                _estimate(measured.ratio(name, ALONE), "x"),
                show.quantity(sent, "B"),
                show.quantity(least, "B"),
                str(rig["late"][name]) if "daso" in name else "",
            ]
        made.append(row + [""] * (len(STEP_COLUMNS) - len(row)))
    return made


def _estimate(value: Estimate, unit: str) -> str:
    return show.quantity(value.value, unit) + show.interval(value.low, value.high, unit)


def step_table(stored: Mapping[str, Any]) -> str:
    """Make the page's tables, one for each rig."""
    machine, lines = stored["machine"], []
    where = f"{machine['cores']} cores of an {machine['cpu']}, torch {machine['torch']}, {machine['mpi']}"
    lines += [f"{where}, one thread a rank, {stored['day']}.", ""]
    for rig in stored["rigs"]:
        lines.append(f"**{_what(rig)}.**")
        if disturbed := _disturbed(rig):
            lines.append(f"{disturbed.capitalize()}.")
        lines += ["", *rows(STEP_COLUMNS, step_rows(rig)), ""]
    return "\n".join(lines)


def draw_steps(stored: Mapping[str, Any], picture: Path) -> None:
    """Draw the steps."""
    show.draw("benchmarks.averaging.plot", "plot_steps", stored, picture)


def render_steps(stored: Mapping[str, Any]) -> None:
    """Put the tables and the picture into the docs."""
    page = _PAGES["daso"]
    page.write_text(with_table(page.read_text(), step_table(stored), _STEP_BEGIN))
    draw_steps(stored, STEP_PICTURE)


# -- training


def training_rows(jobs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Make the table's rows: one for each task and strategy."""
    made = []
    for job in jobs:
        for strategy in dict.fromkeys(run["strategy"] for run in job["runs"]):
            runs = [run for run in job["runs"] if run["strategy"] == strategy]
            columns = []
            for values in zip(*(run["curve"][-1][1:] for run in runs), strict=True):  # losses, accuracies
                columns += [f"{statistics.mean(values):.4f}", f"{min(values):.4f} to {max(values):.4f}"]
            sent = statistics.mean(run["sent"] for run in runs)
            made.append([job["task"], shown(strategy), str(len(runs)), *columns, f"{sent:.2f}"])
    return made


def shown(strategy: str) -> str:
    """Return a strategy's text without the parameters that all of them have."""
    kept = [one for one in strategy.split(",") if not one.startswith(("warmup", "cooldown", "total"))]
    return ",".join(kept)


def of_kind(job: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return a job with the dense trainings, and those of strategies whose texts begin with `kind`."""
    return {**job, "runs": [run for run in job["runs"] if run["strategy"].startswith(("dense", kind))]}


def draw_training(stored: Mapping[str, Any], picture: Path) -> None:
    """Draw the trainings."""
    show.draw("benchmarks.averaging.plot", "plot_training", stored, picture)


def render_training(stored: Mapping[str, Any]) -> None:
    """Put the tables and the pictures into the docs."""
    for kind, page in _PAGES.items():
        jobs = [of_kind(job, kind) for job in stored["jobs"]]
        table = "\n".join([*rows(TRAINING_COLUMNS, training_rows(jobs)), ""])
        page.write_text(with_table(page.read_text(), table, _TRAINING_BEGIN))
        draw_training({**stored, "jobs": jobs}, TRAINING_PICTURES[kind])
