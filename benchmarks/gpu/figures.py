"""The steps' measurements as lines with their goals. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks import show
from benchmarks.table.line import Goal, Line, missing

# The least part of a copy's rate on the device, in the same run, from so many bytes on.
_SHARES = ((100 << 20, 0.9), (25 << 20, 0.85), (4 << 20, 0.6))
_BEYOND_S = 2e-6  # what smaller work may take beyond a copy of as many bytes and a launch
_SELECTION = {"mstopk": 2.0, "radix": 1.3}  # times the time of as many reads, at the copy's rate
_SMALL_SELECTION_S = 40e-6  # from 1 MiB of values
_BESIDE_TOPK = 5.0  # times as fast as torch.topk
_PRODUCTS = (25 << 20, 0.7)  # low-rank products: the least part of a copy's rate, from so many bytes on


def host_time(found: Mapping[str, Any]) -> list[Line]:
    """Compare each model's host time per step with DDP's, which is the limit."""
    made = []
    for cell in found["cells"]:
        work = f"host time of a step, {cell['model']}"
        seconds = cell["seconds"]
        if "ddp" not in seconds:
            made.append(missing(work, f"no DDP: {found['missing']}"))
            continue
        own, theirs = (seconds[who]["median"] for who in ("roundelay", "ddp"))
        texts = show.seconds_text(own), show.seconds_text(theirs)
        made.append(Line(work, texts[0], "DDP", texts[1], own / theirs, "x", Goal(1.0, at_least=False)))
    return made


def kernels(found: Mapping[str, Any]) -> list[Line]:
    """Take the kernel of each size that is slowest relative to a copy, and the selections of values."""
    made = []
    for cell in found["sizes"]:
        made.append(_slowest(cell))
        made += _products(cell)
        made += [_selection(name, one, cell) for name, one in cell["selections"].items()]
    return made


def _slowest(cell: Mapping[str, Any]) -> Line:
    name, share = min(cell["fractions"].items(), key=lambda item: float(item[1]))
    work = f"slowest of {len(cell['fractions'])} kernels, {show.size_text(cell['bytes'])}"
    for least, goal in _SHARES:
        if cell["bytes"] >= least:
            copy = f"{cell['copy_gb_per_s']:.0f} GB/s"
            return Line(work, name, "copy of", copy, share, "x", Goal(goal))
    copy_s = cell["copy_us"] * 1e-6
    launch_s = cell.get("launch_us", 0.0) * 1e-6  # results of earlier versions have none
    beyond = max(0.0, copy_s / share - copy_s - launch_s)
    texts = name, show.seconds_text(copy_s + launch_s)
    return Line(
        work, texts[0], "beyond copy and launch", texts[1], beyond, "s", Goal(_BEYOND_S, at_least=False)
    )


def _products(cell: Mapping[str, Any]) -> list[Line]:
    """Take the low-rank product that is slowest relative to a copy. Earlier versions' results have none."""
    products = cell.get("products", {})
    if not products:
        return []
    name, share = min(products.items(), key=lambda item: float(item[1]))
    work = f"slowest of {len(products)} low-rank products, {show.size_text(cell['bytes'])}"
    least, goal = _PRODUCTS
    copy = f"{cell['copy_gb_per_s']:.0f} GB/s"
    return [Line(work, name, "copy of", copy, share, "x", Goal(goal) if cell["bytes"] >= least else None)]


def _selection(name: str, found: Mapping[str, Any], cell: Mapping[str, Any]) -> Line:
    """Compare a selection of 1 % of the values with so many reads of them: a copy reads and writes."""
    own, reads = found["us"] * 1e-6, found["reads"] * cell["copy_us"] * 1e-6 / 2
    work = f"{name}, 1 % of {show.size_text(cell['bytes'])}"
    texts = show.seconds_text(own), show.seconds_text(reads)
    if name == "radix" and cell["bytes"] <= 1 << 20:
        return Line(work, texts[0], value=own, unit="s", goal=Goal(_SMALL_SELECTION_S, at_least=False))
    goal = Goal(_SELECTION[name], at_least=False) if name in _SELECTION else None
    return Line(work, texts[0], f"{found['reads']} reads", texts[1], own / reads, "x", goal)


def selections(found: Mapping[str, Any]) -> list[Line]:
    """Tell how many times as fast as torch.topk the selections are; MSTopK may miss some of the largest."""
    made = []
    for way in ("radix", "mstopk"):
        work = f"{way}, 1 % of {found['values'] >> 20} Mi values"
        if why := found["missing"].get(way, found["missing"].get("torch.topk")):
            made.append(missing(work, why))
            continue
        own, theirs = (float(found["seconds"][one]["median"]) for one in (way, "torch.topk"))
        texts = show.seconds_text(own), show.seconds_text(theirs)
        goal = Goal(_BESIDE_TOPK) if way == "radix" else None
        made.append(Line(work, texts[0], "torch.topk", texts[1], theirs / own, "x", goal))
    return made


def techniques(found: Mapping[str, Any]) -> list[Line]:
    """Tell what each technique adds to a dense step, and the part of the bytes that it sends."""
    made = []
    for cell in found["cells"]:
        dense = float(cell["seconds"]["dense"]["median"])
        for way, sent in cell["bytes"].items():
            if way == "dense":
                continue
            step = float(cell["seconds"][way]["median"])
            part = sent / cell["bytes"]["dense"]
            work = f"a step of {cell['model']} with {way}, which sends {part:.2%}"
            texts = show.seconds_text(step), show.seconds_text(dense)
            made.append(Line(work, texts[0], "dense", texts[1], step / dense, "x"))
        made += [
            missing(f"a step of {cell['model']} with {way}", why) for way, why in cell["missing"].items()
        ]
    return made


def pointers(found: Mapping[str, Any]) -> list[Line]:
    """Compare the pointer cache with the driver, and sums on the device with those over the host."""
    made = []
    for threads, cell in found["questions"]["threads"].items():
        work = f"a question where memory lies, {threads} thread{'s' if threads != '1' else ''}"
        own, theirs = float(cell["cache_ns"]), float(cell["driver_ns"])
        made.append(Line(work, f"{own:.0f} ns", "driver", f"{theirs:.0f} ns", own / theirs, "x"))
    for cell in found["sums"]:
        own, theirs = float(cell["device_gb_per_s"]), float(cell["host_gb_per_s"])
        work = f"a sum on the device, {show.size_text(cell['bytes'])}"
        made.append(Line(work, f"{own:.3g} GB/s", "over the host", f"{theirs:.3g} GB/s", own / theirs, "x"))
    return made


def mpi_refuses(found: Mapping[str, Any]) -> list[Line]:
    """Tell why MPI cannot move the GPU's memory here; nothing if it can."""
    return [missing("fabric mpi", found["why_not"])] if found["why_not"] else []


def over_mpi(found: Mapping[str, Any]) -> list[Line]:
    """Compare allreduces over MPI with those by the other fabrics, and with the pointer cache."""
    own = found["seconds"]["mpi"]
    made = []
    for way, theirs in found["seconds"].items():
        for size in own if way != "mpi" else ():
            work = f"allreduce of {show.size_text(int(size))} by {found['ranks']} ranks over MPI"
            texts = show.seconds_text(own[size]), show.seconds_text(theirs[size])
            made.append(Line(work, texts[0], way, texts[1], own[size] / theirs[size], "x"))
    asked, passed_on = found["questions"]["asked"], found["questions"]["passed_on"]
    work = "questions to the driver in one rank, with --pointer-cache"
    made.append(Line(work, str(passed_on), "of", str(asked), passed_on / max(1, asked), "x"))
    return made
