"""What communication adds to a training step, of the same ranks without it."""

from __future__ import annotations

from typing import Any

from benchmarks import show
from benchmarks.models import available
from benchmarks.table.line import Goal, Line, missing
from benchmarks.table.run import Run

_LESS = 5.0
_RESOLUTION_S = 1e-3  # less than that is taken as that: medians of steps are no better
_MODELS = {"resnet50": "ResNet-50", "gpt2": "GPT-2 small", "mlp": "MLP"}
_WAYS = ("none", "roundelay", "ddp", "ddp 5 MiB", "ddp 100 MiB")


def measure(run: Run, quick: bool) -> list[dict[str, Any]]:
    """A job of 2 ranks for each model: they take much memory."""
    models = ("mlp",) if quick else ("resnet50", "gpt2")
    found = []
    for model in models:
        if model not in available():
            found.append({"model": model, "missing": "pip install transformers"})
            continue
        spec = {"models": [model], "ways": _WAYS, "repetitions": 2 if quick else 21}
        found += run("train_step", 2, spec)[0]["cells"]
    return found


def exposed(cell: dict[str, Any], who: str) -> float:
    """Tell how much longer a step takes than without communication: of medians."""
    seconds: dict[str, dict[str, float]] = cell["seconds"]
    return seconds[who]["median"] - seconds["none"]["median"]


def _text(cell: dict[str, Any], who: str) -> str:
    """The exposed time, and the quartiles of its repetitions."""
    spread = cell["exposed"][who]
    quartiles = f"{show.seconds_text(spread['low'])} to {show.seconds_text(spread['high'])}"
    return f"{show.seconds_text(exposed(cell, who))} ({quartiles})"


def lines(found: list[dict[str, Any]]) -> list[Line]:
    """Against DDP with the bucket size that serves it best."""
    made = []
    for cell in found:
        name = _MODELS[cell["model"]]
        if "missing" in cell:
            made.append(missing(f"exposed, {name}", cell["missing"]))
            continue
        step = cell["seconds"]["none"]["median"]
        work = f"exposed, {name}, step of {show.seconds_text(step)}, 2 ranks"
        best = min((who for who in cell["seconds"] if who.startswith("ddp")), key=lambda w: exposed(cell, w))
        own, theirs = exposed(cell, "roundelay"), exposed(cell, best)
        ratio = theirs / max(own, _RESOLUTION_S)
        texts = [_text(cell, who) for who in ("roundelay", best)]
        made.append(Line(work, texts[0], best.replace("ddp", "DDP"), texts[1], ratio, "x", Goal(_LESS)))
    return made
