"""The command `roundelay plan`, which predicts training on machines that a user does not have."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from rich.console import Console

from roundelay._internal import output_file
from roundelay._internal.spelling.form import cut_list
from roundelay.plan import (
    learned,
    machines,
    operations,
    outlook,
    recorded,
    report,
    shapes,
    study,
    units,
    ways,
)
from roundelay.plan.machines import Machines, Shape
from roundelay.plan.shapes import Shape as ModelShape
from roundelay.plan.study import Subject
from roundelay.plan.units import PlanError
from roundelay.plan.workload import Roofline, Workload, from_shape

_WIDTH = 140  # columns of a table that does not go to a terminal
_SUFFIXES = (".png", ".svg")
_MOST_RANKS = 1 << 16
_T = TypeVar("_T")


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all errors of this command."""

    def error(self, message: str) -> NoReturn:
        raise PlanError(f"{message.removeprefix('argument ')}; `roundelay plan --help` lists the options")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="roundelay plan",
        description="Predicts how fast training will be on other machines, and which strategy pays there.",
        allow_abbrev=False,
    )
    what = parser.add_argument_group("training (give one of --from and --model)")
    what.add_argument(
        "--from", dest="timeline", type=Path, metavar="JOB.JSON", help="a timeline of your training"
    )
    what.add_argument("--steps", metavar="A:B", default=":", help="only these steps of the timeline")
    what.add_argument("--model", help=f"a known model: {', '.join(shapes.KNOWN)}")
    what.add_argument(
        "--compute", metavar="TIME", help="the time of one rank's step without communication: 0.12s"
    )
    what.add_argument(
        "--flops", metavar="RATE", help="the device's arithmetic, instead of --compute: 12Tflop/s"
    )
    what.add_argument("--membw", metavar="RATE", help="its memory's bandwidth, beside --flops: 900GB/s")
    what.add_argument("--batch-size", metavar="N", help="the samples of one rank per step")
    what.add_argument("--epoch-samples", metavar="N", help="the samples of an epoch, to show its cost")
    where = parser.add_argument_group("machines")
    where.add_argument("--cluster", type=Path, metavar="YAML", help="a file that describes the machines")
    where.add_argument(
        "--tuning",
        type=Path,
        default=os.environ.get("ROUNDELAY_TUNING") or None,
        metavar="JSON",
        help="links and layers that `roundelay tune` has measured (default: ROUNDELAY_TUNING)",
    )
    where.add_argument(
        "--nodes", metavar="N,N", help="numbers of nodes, or the ranks of each: 2,4+4+2 (default: 1,2,4,8)"
    )
    where.add_argument("--ranks-per-node", metavar="N", help="default: 1")
    where.add_argument("--inter", metavar="RATE", help="the bandwidth of a node's link: 10Gbit")
    where.add_argument("--intra", metavar="RATE", help="the bandwidth of a rank's link in its node: 300Gbit")
    where.add_argument("--latency", metavar="TIME", help="the time of a message between nodes: 30us")
    where.add_argument("--memory", metavar="RATE", help="a rank's rate of reads and writes in memory: 20GB/s")
    where.add_argument("--price", metavar="X", help="the price of a node for an hour")
    parser.add_argument_group("collectives, instead of a training").add_argument(
        "--operations", metavar="SIZES", help="the time of each collective on so many bytes: 64KiB,25MiB"
    )
    how = parser.add_argument_group("strategies and results")
    how.add_argument("--strategies", default=ways.DEFAULT, metavar="A,B", help=f"default: {ways.DEFAULT}")
    how.add_argument(
        "--what-if", metavar="KEY=VALUE", help="add a second table with one value changed: inter=25Gbit"
    )
    how.add_argument("--study", metavar="A,B", help=f"vary {', '.join(study.QUANTITIES)} on the most nodes")
    how.add_argument("--output", type=Path, metavar="PICTURE", help="draw the predictions: a .png or .svg")
    how.add_argument("--json", type=Path, metavar="FILE", help="write all numbers; - for stdout")
    return parser


def _steps(text: str) -> slice:
    match = re.fullmatch(r"(\d*):(\d*)", text)
    if not match:
        raise PlanError(f"--steps {text!r} is not like 10:30 (from step 10 up to, not including, 30)")
    begin, end = (int(part) if part else None for part in match.groups())
    return slice(begin, end)


def _read(option: str, reader: Callable[[str], _T], text: str) -> _T:
    """Read an option's value. PlanError names the option."""
    try:
        return reader(text)
    except PlanError as error:
        raise PlanError(f"{option}: {error}") from None


def _subject(given: argparse.Namespace) -> tuple[Subject, float]:
    """Return the training on its machines, and the jitter of its steps (Recording.jitter)."""
    samples = float(_read("--batch-size", units.count, given.batch_size)) if given.batch_size else 1.0
    if (given.timeline is None) == (given.model is None):
        raise PlanError("give --from JOB.JSON (a timeline) or --model NAME --compute TIME")
    if given.timeline is not None:
        if given.compute or given.flops or given.membw:
            raise PlanError("--compute and --flops go with --model: a timeline has its own times")
        recording = recorded.load(given.timeline, samples, _steps(given.steps))
        return Subject(recording.workload, _machines(given)), recording.jitter
    if given.model not in shapes.KNOWN:
        raise PlanError(f"no model {given.model!r} is known; known are {', '.join(shapes.KNOWN)}")
    return _modelled(given, shapes.KNOWN[given.model](), samples, _machines(given)), 0.0


def _modelled(given: argparse.Namespace, shape: ModelShape, samples: float, found: Machines) -> Subject:
    """Return a known model's step: from stated times, or else from the layers of the tuning file."""
    if given.compute and not (given.flops or given.membw):
        return Subject(from_shape(shape, _read("--compute", units.seconds, given.compute), samples), found)
    if given.flops and given.membw and not given.compute:
        roofline = Roofline(
            _read("--flops", units.flops, given.flops), _read("--membw", units.bandwidth, given.membw)
        )
        step = roofline.workload(shape, samples)
        return Subject(step, found, roofline, lambda line, n: line.workload(shape, n))
    times = machines.load_tuning(given.tuning).layers if given.tuning is not None else None
    if times is None or given.compute or given.flops or given.membw:
        raise PlanError(
            "--model needs --compute (a step without communication, 0.12s), or --flops and --membw, or with "
            "--tuning a file that `roundelay tune --layers` has written"
        )

    def step_of(count: float) -> Workload:
        return learned.from_times(shape, times, count, str(given.tuning))

    return Subject(step_of(samples), found, of_samples=step_of)


def _machines(given: argparse.Namespace) -> Machines:
    found = machines.from_cluster(given.cluster) if given.cluster is not None else Machines()
    if given.tuning is not None:
        found = machines.from_tuning(given.tuning, found)
    for name in ("ranks_per_node", "inter", "intra", "latency", "memory", "price"):
        value = getattr(given, name)
        if value is not None:
            change = functools.partial(machines.changed, found)
            found = _read(f"--{name.replace('_', '-')}", change, f"{name}={value}")
    return found


def _nodes(given: argparse.Namespace, found: Machines) -> list[Shape]:
    """Return what --nodes names, the smallest first."""
    if given.nodes is not None:
        shapes = {_read("--nodes", machines.shape, part) for part in given.nodes.split(",")}
        if given.ranks_per_node is not None and not any(isinstance(shape, int) for shape in shapes):
            raise PlanError("--nodes has the ranks of each node: leave out --ranks-per-node")
    else:
        shapes = {found.shape} if given.cluster is not None and found.nodes > 1 else {1, 2, 4, 8}
    nodes = sorted(shapes, key=lambda shape: found.on(shape).size)
    _check_ranks(nodes[-1], found)
    return nodes


def _check_ranks(shape: Shape, found: Machines) -> None:
    there = found.on(shape)
    if there.ranks > _MOST_RANKS:
        raise PlanError(
            f"{there.nodes} nodes of {there.ranks_text()} ranks are more than {_MOST_RANKS} ranks: "
            "give fewer with --nodes or --ranks-per-node"
        )


def _check_files(given: argparse.Namespace) -> None:
    """Find files that cannot be written before the work."""
    if given.output is not None and given.output.suffix.lower() not in _SUFFIXES:
        raise PlanError(f"--output: '{given.output}' ends in neither .png nor .svg")
    for option, path in (("--output", given.output), ("--json", given.json)):
        if path is None or str(path) == "-":
            continue
        why = output_file.objection(path)
        if why is None and not os.access(path if path.exists() else path.parent, os.W_OK):
            why = "permission denied"
        if why is not None:
            raise PlanError(f"{option}: cannot write '{path}': {why}: name a file that you may write")


def _what_if(text: str, found: Machines, nodes: list[Shape]) -> tuple[Machines, list[Shape]]:
    """Return the machines and their nodes after a change."""
    changed = _read("--what-if", functools.partial(machines.changed, found), text)
    key = text.partition("=")[0]
    if key == "nodes":
        nodes = [changed.shape]
    if key == "ranks_per_node" and not all(isinstance(shape, int) for shape in nodes):
        raise PlanError("--what-if ranks_per_node does not go with nodes like 4+4+2: change nodes instead")
    _check_ranks(nodes[-1], changed)
    return changed, nodes


def _draw(draw: str, found: object, title: str, path: Path, console: Console) -> None:
    """Call a function of picture.py by its name. It needs matplotlib: optional, slow to import."""
    try:
        from roundelay.plan import picture
    except ImportError:
        raise PlanError("no picture, matplotlib is missing: pip install matplotlib") from None
    try:
        getattr(picture, draw)(found, title, path)
    except OSError as error:
        raise PlanError(f"cannot write '{path}': {error.strerror}") from None
    console.print(f"picture: {path}", highlight=False)


def _write_json(path: Path, text: str) -> None:
    if str(path) == "-":
        print(text)
        return
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise PlanError(f"cannot write '{path}': {error.strerror}") from None


def _study(given: argparse.Namespace, subject: Subject, jitter: float, console: Console) -> None:
    strategies = _strategies(given)
    there = subject.machines.on(_nodes(given, subject.machines)[-1])
    subject = dataclasses.replace(subject, machines=there)
    found = study.study(subject, given.study, strategies, jitter)
    for table in study.tables(found):
        console.print(table)
    rows = next(iter(found.values()))[study.FACTORS.index(1.0)][1]
    for line in [*report.inputs(subject.workload, rows), *study.unvaried(subject, found)]:
        console.print(line, highlight=False, markup=False)
    if given.output is not None:
        title = f"{subject.workload.name} on {there.nodes_text()}: {there.describe()}"
        _draw("draw_study", found, title, given.output, console)
    if given.json is not None:
        _write_json(given.json, json.dumps(report.study_json(subject.workload, found), indent=1))


def _strategies(given: argparse.Namespace) -> list[str]:
    strategies = cut_list(given.strategies)
    if not strategies:
        raise PlanError("--strategies is empty: give dense,csc:keep=0.1 for example")
    return strategies


def _predict(given: argparse.Namespace, subject: Subject, jitter: float, console: Console) -> None:
    workload, found = subject.workload, subject.machines
    nodes, strategies = _nodes(given, found), _strategies(given)
    epoch = float(_read("--epoch-samples", units.count, given.epoch_samples)) if given.epoch_samples else None
    tables = [outlook.table(workload, found, nodes, strategies, jitter)]
    texts = [outlook.advice(tables[0])]
    if given.what_if:
        changed, others = _what_if(given.what_if, found, nodes)
        tables.append(outlook.table(workload, changed, others, strategies, jitter))
        texts.append(f"With {given.what_if}: {outlook.advice(tables[1])}")
    for index, rows in enumerate(tables):
        if index:
            console.print(f"what if {given.what_if}", highlight=False)
        console.print(report.table(rows, given.batch_size is not None, epoch))
        for line in report.inputs(workload, rows):
            console.print(line, highlight=False, markup=False)
    for text in texts:
        console.print(text, highlight=False, markup=False)
    if given.output is not None:
        _draw("draw", tables[0], f"{workload.name}: {found.describe()}", given.output, console)
    if given.json is not None:
        plans = [
            report.as_json(workload, rows, text, jitter, epoch)
            for rows, text in zip(tables, texts, strict=True)
        ]
        plan = {**plans[0], **({"what_if": {"change": given.what_if, **plans[1]}} if given.what_if else {})}
        _write_json(given.json, json.dumps(plan, indent=1))


def _operations(given: argparse.Namespace, console: Console) -> None:
    for option in ("timeline", "model", "study", "what_if", "output"):
        if getattr(given, option) is not None:
            name = "from" if option == "timeline" else option.replace("_", "-")
            raise PlanError(f"--operations predicts no training: leave out --{name}")
    wanted, found = operations.sizes(given.operations), _machines(given)
    rows = operations.rows(found, _nodes(given, found), wanted)
    console.print(operations.table(rows))
    console.print(report.links_line(found), highlight=False, markup=False)
    for text in dict.fromkeys(row.machines.outside() for row in rows):
        if text:
            console.print(f"note: {text}", highlight=False, markup=False)
    if given.json is not None:
        _write_json(given.json, json.dumps(operations.as_json(rows), indent=1))


def _run(given: argparse.Namespace, console: Console) -> None:
    _check_files(given)
    if given.operations is not None:
        _operations(given, console)
        return
    if given.study and given.what_if:
        raise PlanError("--study and --what-if do not go together: give one")
    if given.epoch_samples and not given.batch_size:
        raise PlanError("--epoch-samples needs --batch-size, the samples of one rank per step")
    subject, jitter = _subject(given)
    (_study if given.study else _predict)(given, subject, jitter, console)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Return 0, or 2 after one line on stderr."""
    try:
        given = _parser().parse_args(argv)
        console = Console(stderr=str(given.json) == "-")
        if not console.is_terminal:
            console = Console(width=_WIDTH, stderr=str(given.json) == "-")
        _run(given, console)
    except PlanError as error:
        print(f"roundelay plan: {error}", file=sys.stderr)
        return 2
    return 0
