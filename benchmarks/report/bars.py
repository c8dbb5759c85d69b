"""Draws times as bars: training steps, epochs, trust ratios, selections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks import show
from benchmarks.report import picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LIBRARIES = {
    "roundelay": picture.BLUE,
    "gloo": picture.ORANGE,
    "ddp": picture.RED,
}
_RATIOS = {"per layer": picture.SILVER, "multi-tensor": picture.ORANGE, "shared": picture.BLUE}
_SELECTIONS = {  # by way: color, name
    "mstopk": (picture.BLUE, "mstopk"),
    "auto": (picture.DARK_BLUE, "radix (auto)"),
    "torch.topk": (picture.ORANGE, "torch.topk"),
    "argpartition": (picture.SILVER, "argpartition"),
    "sampled": (picture.OLIVE, "sampled threshold (DGC)"),
    "reads": (picture.SAND, "8 reads of the data"),
}


def train_step(found: dict[str, Any]) -> Figure:
    """Draw the step without communication, and what each library adds to it."""
    jobs = found["jobs"]
    models = [cell["model"] for cell in jobs[0]["cells"]]
    size = 4.2 * len(models), 2.6 * len(jobs) + 0.6
    figure, axes = picture.panels(len(jobs), len(models), size, 120, sharey=True)
    for row, job in zip(axes, jobs, strict=True):
        for one, cell in zip(row, job["cells"], strict=True):
            compute = cell["seconds"]["none"]["median"] * 1e3
            names = [name for name in cell["seconds"] if name != "none"]
            added = [max(0.0, cell["exposed"][name]["median"] * 1e3) for name in names]
            one.barh(names, [compute] * len(names), color=picture.SILVER, label="without communication")
            one.barh(names, added, left=compute, color=[_LIBRARIES[name] for name in names])
            ends = ((compute + more, place, f"+{more:.3g} ms") for place, more in enumerate(added))
            picture.values(one, ends)
            one.set_xlim(0, (compute + max(added)) * 1.25)
            one.invert_yaxis()
            one.set_title(f"{cell['model']}, {job['ranks']} ranks", fontsize=10)
            one.set_xlabel("ms a step (median)", fontsize=8)
    figure.suptitle("Training step: gray is the step without communication, the rest is exposed", fontsize=12)
    return figure


def data_cache(found: dict[str, Any]) -> Figure:
    """Draw samples a second of each kind of epoch, and the memory of the cache."""
    names = [name for name in found["seconds"] if "no transform" not in name]
    names.sort(key=lambda name: found["seconds"][name]["median"], reverse=True)
    figure, axes = picture.panels(2, 1, (4.2, 4.4), 120, sharey=True)
    speeds = [found["samples"] / found["seconds"][name]["median"] for name in names]
    colors = [picture.BLUE if "with a" in name else picture.SILVER for name in names]
    (above,), (below,) = axes
    above.barh(names, speeds, color=colors)
    picture.values(above, ((speed, place, f"{speed:.0f}") for place, speed in enumerate(speeds)))
    above.set_xlim(0, 1.2 * max(speeds))
    above.set_xlabel("samples a second, all ranks (median epoch)", fontsize=8)
    memory = found["memory"]
    processes = found["ranks"] * (1 + found["workers"])
    sizes = {
        "kept": memory["kept"],
        f"in memory, by {processes} processes": memory["share"],
        "one copy for each rank": found["ranks"] * memory["kept"],
    }
    colors = [picture.BLUE, picture.BLUE, picture.SILVER]
    below.barh(list(sizes), [size / 2**20 for size in sizes.values()], color=colors)
    below.set_xlabel("MiB", fontsize=8)
    for one in (above, below):
        one.invert_yaxis()
        one.tick_params(labelsize=8)
    delay = show.seconds_text(found["delay"])
    figure.suptitle(f"DataCache: a read from the source takes {delay}", fontsize=10)
    return figure


def trust_ratios(found: dict[str, Any]) -> Figure:
    """Draw a panel for each job, and one for the model; bars of all ways, on a log scale."""
    every = [(f"{job['ranks']} ranks, measured", job["cells"]) for job in found["jobs"]]
    if found["model"]:
        every.append(("128 GPUs, the model", found["model"]))
    figure, [row] = picture.panels(1, len(every), (3.6 * len(every), 2.8), 120)
    for axes, (title, cells) in zip(row, every, strict=True):
        height = 0.8 / len(_RATIOS)
        for place, (way, color) in enumerate(_RATIOS.items()):
            places = [tick + (place - 1) * height for tick in range(len(cells))]
            medians = picture.bars(axes, places, height, [cell["seconds"][way] for cell in cells], color, way)
            texts = (f" {show.seconds_text(median)}" for median in medians)
            picture.values(axes, zip(medians, places, texts, strict=True), 7)
        axes.margins(x=0.4)
        picture.log_bars(axes, [cell["model"] for cell in cells], title, "seconds of a step's trust ratios")
    picture.legend_above(figure, 3)
    return figure


def selections(found: dict[str, Any]) -> Figure:
    """Draw a panel for each number of values: bars of all ways, on a log scale."""
    sizes = sorted({cell["size"] for cell in found["cells"]})
    figure, [row] = picture.panels(1, len(sizes), (4.6 * len(sizes), 4.2), 110)
    for axes, size in zip(row, sizes, strict=True):
        cells = [cell for cell in found["cells"] if cell["size"] == size]
        height = 0.84 / len(_SELECTIONS)
        for place, (way, (color, name)) in enumerate(_SELECTIONS.items()):
            places = [tick + (place - len(_SELECTIONS) / 2) * height for tick in range(len(cells))]
            picture.bars(axes, places, height, [cell["seconds"][way] for cell in cells], color, name)
        ticks = [f"{cell['distribution']}\n{cell['density']:.1%}" for cell in cells]
        picture.log_bars(axes, ticks, f"{size / (1 << 20):g}M values", "CPU seconds of a selection")
    picture.legend_above(figure, 6)
    return figure
