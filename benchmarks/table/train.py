"""The time and CPU time that communication adds to a training step."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks import show, two_nodes_train
from benchmarks.bare import compiler
from benchmarks.models import available
from benchmarks.shapes import NAMES
from benchmarks.table import nodes
from benchmarks.table.result import Result
from benchmarks.table.run import Run
from benchmarks.table.samples import Samples, compare

_RESOLUTION_S = 1e-3  # shorter times count as this: medians of steps are not more exact
_WAYS = ("none", "roundelay", "ddp", "ddp 5 MiB", "ddp 100 MiB")
_NODES = "2 nodes of 2 ranks, 1 Gbit/s"
FULL = "fp32"


def under_way(model: str) -> str:
    """Return the name of the work: how long communication in bf16 is under way between nodes."""
    return f"communication under way in a step, {NAMES[model]} in bf16, {_NODES}"


def measure(run: Run, quick: bool) -> list[dict[str, Any]]:
    """Run a job of 2 ranks for each model, because models take much memory."""
    models = ("mlp",) if quick else ("resnet50", "gpt2")
    found = []
    for model in models:
        if model not in available():
            found.append({"model": model, "missing": "pip install transformers"})
            continue
        spec = {
            "models": [model],
            "ways": _WAYS,
            "repetitions": 2 if quick else 21,
            "bare": compiler() is not None,
        }
        found += run("train_step", 2, spec)[0]["cells"]
    if not quick:
        wired = nodes.command("benchmarks.two_nodes_train", "--models", "resnet50")
        absent: list[dict[str, Any]] = [{"model": "resnet50", **wired}]
        found += [cell | {"mbit": 1000} for cell in wired.get("cells", absent)]
    return found


def _added(
    work: str, values: dict[str, list[float]], cell: dict[str, Any], note: str = "", headline: str = ""
) -> Result:
    """Compare the time that each way adds. DDP has the bucket size that suits it best."""
    bases = {name: "none" for name in values if name not in ("none", "bare")}
    samples = Samples(values, cell["others"], bases, _RESOLUTION_S)
    if samples.why_not:
        return Result(work, why=samples.why_not)
    ddp = min((name for name in values if name.startswith("ddp")), key=lambda name: samples.cost(name).value)
    buckets = f"DDP with buckets of {ddp.removeprefix('ddp').strip() or '25 MiB'}"
    note = ", ".join(filter(None, (note, buckets)))
    return compare(work, samples, {ddp: "DDP"}, note=note, headline=headline)


def _over_a_wire(cell: dict[str, Any]) -> list[Result]:
    """Compare gradients in bf16 with fp32's: the time that they add, and that they are under way."""
    name = f"{NAMES[cell['model']]} in bf16, {_NODES}"
    works = f"exposed in a step, {name}", under_way(cell["model"])
    if "missing" in cell:
        return [Result(work, why=cell["missing"]) for work in works]
    full, half = two_nodes_train.FULL, two_nodes_train.HALF
    peers = {full: FULL, "ddp": "DDP", "ddp fp16": "DDP in fp16"}
    bases = {way: "none" for way in cell["seconds"] if way != "none"}
    exposed = Samples(cell["seconds"], cell["others"], bases, _RESOLUTION_S)
    flying = Samples(cell["under_way"], cell["others"])
    return [
        compare(works[0], exposed, peers, own=half),
        compare(works[1], flying, {full: FULL}, own=half),
    ]


def results(found: list[dict[str, Any]]) -> list[Result]:
    """Make the results: exposed time and CPU time of each model."""
    made = []
    for cell in found:
        if "mbit" in cell:
            made += _over_a_wire(cell)
            continue
        name = f"{NAMES[cell['model']]}, 2 ranks"
        exposed, cpu = f"exposed in a step, {name}", f"CPU time added to a rank's step, {name}"
        if "missing" in cell:
            made += [Result(work, why=cell["missing"]) for work in (exposed, cpu)]
            continue
        seconds = cell["seconds"]
        bare = {name: own for name, own in seconds.items() if name == "bare"}  # it computes all the time
        note = f"step of {show.seconds_text(median(seconds['none']))}"
        made.append(_added(exposed, seconds, cell, note=note, headline=exposed))
        made.append(_added(cpu, {**cell["cpu"], **bare}, cell))
    return made
