"""`roundelay plan` predicts training on machines that one does not have yet."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from roundelay.plan import machines, outlook, recorded, report, shapes, units, ways
from roundelay.plan.machines import Machines
from roundelay.plan.outlook import Row
from roundelay.plan.units import PlanError
from roundelay.plan.workload import Workload, from_shape

_WIDTH = 140  # columns of a table that does not go to a terminal
_SUFFIXES = (".png", ".svg")
_MOST_RANKS = 1 << 16


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="roundelay plan",
        description="Predicts how fast training will be on other machines, and which strategy pays there.",
        allow_abbrev=False,
    )
    what = parser.add_argument_group("what is trained (one of --from and --model)")
    what.add_argument("--from", dest="timeline", type=Path, metavar="JOB.JSON", help="a timeline of yours")
    what.add_argument("--steps", metavar="A:B", default=":", help="only these steps of the timeline")
    what.add_argument("--model", help=f"a known model: {', '.join(shapes.KNOWN)}")
    what.add_argument("--compute", metavar="TIME", help="a step of one rank without communication: 0.12s")
    what.add_argument("--batch-size", metavar="N", help="samples of a rank's step")
    what.add_argument("--epoch-samples", metavar="N", help="samples of an epoch, for its cost")
    where = parser.add_argument_group("where")
    where.add_argument("--cluster", type=Path, metavar="YAML", help="a file that describes the machines")
    where.add_argument("--tuning", type=Path, metavar="JSON", help="links that `roundelay tune` has measured")
    where.add_argument("--nodes", metavar="N,N", help="numbers of nodes: 1,2,4 (default: 1,2,4,8)")
    where.add_argument("--ranks-per-node", metavar="N", help="default: 1")
    where.add_argument("--inter", metavar="RATE", help="what a node sends in a second: 10Gbit")
    where.add_argument("--intra", metavar="RATE", help="what a rank sends inside its node: 300Gbit")
    where.add_argument("--latency", metavar="TIME", help="of a message between nodes: 30us")
    where.add_argument("--memory", metavar="RATE", help="what a rank reads and writes in memory: 20GB/s")
    where.add_argument("--price", metavar="X", help="of a node for an hour")
    how = parser.add_argument_group("what to try, and what to write")
    how.add_argument("--strategies", default=ways.DEFAULT, metavar="A,B", help=f"default: {ways.DEFAULT}")
    how.add_argument("--what-if", metavar="KEY=VALUE", help="beside it the same with inter=25Gbit, say")
    how.add_argument("--output", type=Path, metavar="PICTURE", help="draw it: a .png or .svg")
    how.add_argument("--json", type=Path, metavar="FILE", help="write all numbers; - for stdout")
    return parser


def _steps(text: str) -> slice:
    match = re.fullmatch(r"(\d*):(\d*)", text)
    if not match:
        raise PlanError(f"--steps {text!r} is not like 10:30 (from step 10 up to, not including, 30)")
    begin, end = (int(part) if part else None for part in match.groups())
    return slice(begin, end)


def _workload(given: argparse.Namespace) -> tuple[Workload, float]:
    """Return what is trained, and the jitter of its steps."""
    samples = float(units.count(given.batch_size)) if given.batch_size else 1.0
    if given.timeline is not None and given.model is None:
        if given.compute:
            raise PlanError("--compute goes with --model: a timeline has its own times")
        recording = recorded.load(given.timeline, samples, _steps(given.steps))
        return recording.workload, recording.jitter
    if given.model is None or given.timeline is not None:
        raise PlanError("give --from JOB.JSON (a timeline) or --model NAME --compute TIME")
    if given.model not in shapes.KNOWN:
        raise PlanError(f"no model {given.model!r} is known; known are {', '.join(shapes.KNOWN)}")
    if not given.compute:
        raise PlanError("--model needs --compute: the time of a rank's step without communication, as 0.12s")
    return from_shape(shapes.KNOWN[given.model](), units.seconds(given.compute), samples), 0.0


def _machines(given: argparse.Namespace) -> Machines:
    found = machines.from_cluster(given.cluster) if given.cluster is not None else Machines()
    if given.tuning is not None:
        found = machines.from_tuning(given.tuning, found)
    for name in ("ranks_per_node", "inter", "intra", "latency", "memory", "price"):
        value = getattr(given, name)
        if value is None:
            continue
        try:
            found = machines.changed(found, f"{name}={value}")
        except PlanError as error:
            raise PlanError(f"--{name.replace('_', '-')}: {error}") from None
    return found


def _nodes(given: argparse.Namespace, found: Machines) -> list[int]:
    default = str(found.nodes) if given.cluster is not None and found.nodes > 1 else "1,2,4,8"
    nodes = sorted({units.count(part) for part in (given.nodes or default).split(",")})
    if nodes[-1] * found.ranks_per_node > _MOST_RANKS:
        raise PlanError(
            f"{nodes[-1]} nodes of {found.ranks_per_node} ranks are more than {_MOST_RANKS} ranks"
        )
    return nodes


def _check_output(path: Path | None) -> None:
    if path is not None and path.suffix.lower() not in _SUFFIXES:
        raise PlanError(f"'{path}' ends in neither .png nor .svg")


def _draw(rows: Sequence[Row], title: str, path: Path) -> None:
    try:
        from roundelay.plan.picture import draw  # matplotlib: optional, slow to import
    except ImportError:
        raise PlanError("no picture, matplotlib is missing: pip install matplotlib") from None
    try:
        draw(rows, title, path)
    except OSError as error:
        raise PlanError(f"cannot write '{path}': {error.strerror}") from None


def _write_json(path: Path, text: str) -> None:
    if str(path) == "-":
        print(text)
        return
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise PlanError(f"cannot write '{path}': {error.strerror}") from None


def _run(given: argparse.Namespace, console: Console) -> None:
    _check_output(given.output)
    workload, jitter = _workload(given)
    found = _machines(given)
    nodes = _nodes(given, found)
    strategies = ways.split(given.strategies)
    if not strategies:
        raise PlanError("--strategies is empty: give dense,bf16 for example")
    epoch = float(units.count(given.epoch_samples)) if given.epoch_samples else None
    rows = outlook.table(workload, found, nodes, strategies, jitter)
    texts = [outlook.advice(rows)]
    tables = [rows]
    if given.what_if:
        other = outlook.table(workload, machines.changed(found, given.what_if), nodes, strategies, jitter)
        tables.append(other)
        texts.append(f"With {given.what_if}: {outlook.advice(other)}")
    for index, each in enumerate(tables):
        if index:
            console.print(f"what if {given.what_if}", highlight=False)
        console.print(report.table(each, given.batch_size is not None, epoch))
        for line in report.inputs(workload, each):
            console.print(line, highlight=False, markup=False)
    for text in texts:
        console.print(text, highlight=False, markup=False)
    if given.output is not None:
        _draw(rows, f"{workload.name}: {found.describe()}", given.output)
        console.print(f"picture: {given.output}", highlight=False)
    if given.json is not None:
        plans = [
            report.as_json(workload, each, text, jitter, epoch)
            for each, text in zip(tables, texts, strict=True)
        ]
        plan = {**plans[0], **({"what_if": {"change": given.what_if, **plans[1]}} if len(plans) > 1 else {})}
        _write_json(given.json, json.dumps(plan, indent=1))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0, or 2 with one line on stderr."""
    given = _parser().parse_args(argv)
    console = Console(stderr=str(given.json) == "-")
    if not console.is_terminal:
        console = Console(width=_WIDTH, stderr=str(given.json) == "-")
    try:
        _run(given, console)
    except PlanError as error:
        print(f"roundelay plan: {error}", file=sys.stderr)
        return 2
    return 0
