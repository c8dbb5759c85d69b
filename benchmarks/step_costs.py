"""What a step costs beside its sums: control messages, operations, CPU time and calls of Python functions.

Each scenario is a job of its own, with small parameters in five buckets. Numbers are those of a step:
messages are summed over the ranks, CPU times are medians and means, and calls are those of the rank with the
most. Of several windows of steps the one with the fewest messages counts, because a rank that is late for
lack of a core ends a schedule lock.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

from benchmarks import launch, show
from benchmarks.workers.scenarios import SCENARIOS

_ROOT = Path(__file__).resolve().parent.parent
_LIMIT_S = 300.0
_WINDOWS = 5
_THETA = "2048"
_COUNTERS = {
    "messages": "messages_sent",
    "bytes": "message_bytes",
    "reports": "reports_sent",
    "full": "full_requests",
    "cached": "cached_requests",
    "orders": "orders_given",
    "wakeups": "wakeups_sent",
}
_PHASES = ("backward", "step", "zero_grad")
# The metrics of which more is worse, and the share by which two runs of the same code differ: which rank has
# a core decides how many requests travel in one report, and how many tensors in one operation.
_NOISE = {
    **dict.fromkeys(_COUNTERS, 0.5),
    "full": 0.0,
    "cached": 0.0,
    "operations": 0.25,
    **dict.fromkeys(_PHASES, 0.0),
}
_LOCKED_NOISE = 0.1  # tensors that share an operation change the share by so much
GRADIENT: dict[str, Any] = {"gradients": 161, "repetitions": 150, "clock": "thread"}
LEAST_RANKS = {"two sets": 4}  # a half of the ranks is a set of its own
VARIABLES = {"pool off": {"ROUNDELAY_GRADIENT_POOL": "0"}}
NAMES = (
    "alone",
    "dense",
    "csc",
    "in turn",
    "two optimizers",
    "gan",
    "two sets",
    "join",
    "groups",
    "pool off",
)
COLUMNS = (
    "scenario",
    "ranks",
    "operations",
    *_COUNTERS,
    "locked",
    "steps a freeze",
    "thread",
    "process",
    *(f"in {phase}" for phase in _PHASES),
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step_costs", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2, help="ranks of a job (default: 2)")
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--device", choices=("cpu", "fakegpu"), default="cpu", help="(default: cpu)")
    parser.add_argument("--parameters", type=int, default=40, help="of 64 elements (default: 40)")
    parser.add_argument("--steps", type=int, default=60, help="of a window (default: 60)")
    parser.add_argument("--gradient", action="store_true", help="measure the CPU time of one, too")
    parser.add_argument("--out", type=Path, default=Path("out/step_costs.json"), help="a line each scenario")
    parser.add_argument("--before", type=Path, help="an earlier --out: list what is worse now")
    return parser


def costs(found: Sequence[Mapping[str, Any]], steps: int) -> dict[str, Any]:
    """Return the costs of a step, from what all ranks of a job have found."""
    windows = list(zip(*(rank["windows"] for rank in found), strict=True))
    ranks = min(windows, key=lambda window: _total(window, "messages_sent"))
    own = ranks[0]["counters"]
    operations = own.get("operations", 0)
    freezes = max(rank["counters"].get("schedule_unlocks", 0) for rank in ranks)
    return {
        **{name: _total(ranks, counter) / steps for name, counter in _COUNTERS.items()},
        "operations": operations / steps,
        "locked": own.get("locked_operations", 0) / operations if operations else None,
        "steps a freeze": steps / freezes if freezes else None,
        "thread": median(time for rank in ranks for time in rank["thread_ns"]) * 1e-9,
        "process": fmean(rank["process_ns"] for rank in ranks) / steps * 1e-9,
        **{phase: max(_calls(rank, phase) for rank in found) / steps for phase in _PHASES},
    }


def _total(ranks: Sequence[Mapping[str, Any]], counter: str) -> int:
    return sum(rank["counters"].get(counter, 0) for rank in ranks)


def _calls(rank: Mapping[str, Any], phase: str) -> int:
    return sum(number for where, _, number in rank["calls"] if where == phase)


def row(line: Mapping[str, Any]) -> list[str]:
    """Make the table's row of a scenario."""
    cost = line["costs"]
    counts = [f"{cost[name]:.3g}" for name in ("operations", *_COUNTERS)]
    locked = "-" if cost["locked"] is None else f"{cost['locked']:.0%}"
    freeze = "none" if cost["steps a freeze"] is None else f"{cost['steps a freeze']:.3g}"
    times = [show.seconds_text(cost[name]) for name in ("thread", "process")]
    calls = [f"{cost[phase]:.3g}" for phase in _PHASES]
    return [line["scenario"], str(line["ranks"]), *counts, locked, freeze, *times, *calls]


def worse(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """Return what is worse in a scenario, of what a busy machine leaves as it is."""
    new, old = now["costs"], before["costs"]
    lines = [
        f"{name} {old[name]:.3g} -> {new[name]:.3g}"
        for name, noise in _NOISE.items()
        if new[name] > old[name] * (1 + noise) + 1e-9
    ]
    if (new["locked"] or 0) < (old["locked"] or 0) - _LOCKED_NOISE:
        lines.append(f"locked {old['locked']:.0%} -> {new['locked'] or 0:.0%}")
    if new["steps a freeze"] is not None and new["steps a freeze"] < (old["steps a freeze"] or float("inf")):
        lines.append(f"steps a freeze {old['steps a freeze'] or 'none'} -> {new['steps a freeze']:.3g}")
    return [f"{now['scenario']}, {now['ranks']} ranks, {now['device']}: {line}" for line in lines]


def _run(scenario: str, arguments: argparse.Namespace) -> dict[str, Any]:
    ranks = max(arguments.ranks, LEAST_RANKS.get(scenario, 0))
    spec = {
        "scenario": scenario,
        "device": arguments.device,
        "parameters": arguments.parameters,
        "steps": arguments.steps,
        "windows": _WINDOWS,
    }
    folders = (_ROOT / "python", _ROOT / "tests" / "python" / "support")
    path = [*map(str, folders), os.environ.get("PYTHONPATH", "")]
    variables = {
        "ROUNDELAY_THETA": _THETA,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        **VARIABLES.get(scenario, {}),
    }
    module = "benchmarks.workers.step_costs"
    found = launch.run_ranks(launch.find_launcher(), module, ranks, spec, _LIMIT_S, variables=variables)
    return {
        **spec,
        "ranks": ranks,
        "costs": costs(found, arguments.steps),
        "windows": [[own["counters"] for own in rank["windows"]] for rank in found],
        "calls": found[0]["calls"],
    }


def _gradient() -> dict[str, float]:
    """Return what hooks add to the thread CPU time of a gradient in a backward, in tenth percentiles."""
    module = "benchmarks.workers.submit"
    found = launch.run_ranks(launch.find_launcher(), module, 2, GRADIENT, _LIMIT_S)[0]["seconds"]
    tenth = {kind: quantiles(seconds, n=10)[0] for kind, seconds in found.items()}
    return {kind: tenth[kind] - tenth["plain"] for kind in ("hooked", "empty hooks")}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    lines = [_run(scenario, arguments) for scenario in arguments.scenarios]
    console = show.console()
    console.width = max(console.width, 190)
    console.print(show.table(COLUMNS, [row(line) for line in lines], texts=1))
    gradient = _gradient() if arguments.gradient else {}
    for kind, seconds in gradient.items():
        console.print(f"CPU time that a gradient adds, {kind}: {show.seconds_text(seconds)}", highlight=False)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    every = [*lines, *([{"gradient": gradient}] if gradient else [])]
    arguments.out.write_text("".join(json.dumps(line) + "\n" for line in every))
    console.print(f"wrote {arguments.out}", highlight=False)
    if arguments.before is not None:
        earlier = [json.loads(text) for text in arguments.before.read_text().splitlines()]
        by_key = {_key(line): line for line in earlier if "scenario" in line}
        for line in lines:
            for text in worse(line, by_key[_key(line)]) if _key(line) in by_key else ():
                console.print(f"worse: {text}", highlight=False)


def _key(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return line["scenario"], line["ranks"], line["device"], line["parameters"], line["steps"]


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
