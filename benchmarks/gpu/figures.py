"""The steps' measurements as lines with their goals. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks import show
from benchmarks.table.line import Goal, Line, missing

_BANDWIDTH = 0.85  # the least part of the rate of a copy of as many bytes on the device, in the same run
_SELECTION = 2.0  # times the time of as many reads, at the copy's bandwidth


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
        name, share = min(cell["fractions"].items(), key=lambda item: float(item[1]))
        work = f"slowest of {len(cell['fractions'])} kernels, {show.size_text(cell['bytes'])}"
        copy = f"{cell['copy_gb_per_s']:.0f} GB/s"
        made.append(Line(work, name, "copy of", copy, share, "x", Goal(_BANDWIDTH)))
        made += [_selection(name, one, cell) for name, one in cell["selections"].items()]
    return made


def _selection(name: str, found: Mapping[str, Any], cell: Mapping[str, Any]) -> Line:
    """Compare a selection of 1 % of the values with the reads that it needs: a copy reads and writes."""
    reads = found["reads"] * cell["copy_us"] / 2
    work = f"{name}, 1 % of {show.size_text(cell['bytes'])}"
    texts = show.seconds_text(found["us"] * 1e-6), show.seconds_text(reads * 1e-6)
    goal = Goal(_SELECTION, at_least=False)
    return Line(work, texts[0], f"{found['reads']} reads", texts[1], found["us"] / reads, "x", goal)


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
