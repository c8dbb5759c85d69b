"""Two nodes of 2 ranks: the results of benchmarks.two_nodes, if this machine can make nodes.

At 1 Gbit/s the wire limits, at 10 Gbit/s the CPU time that a byte needs.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import show
from benchmarks.table.result import Estimate, Result
from benchmarks.table.run import Run
from benchmarks.table.samples import Samples, compare

_MODULE = "benchmarks.two_nodes"
_LIMIT_S = 600
_NODES = "2 nodes of 2 ranks"
_WORK = f"{_NODES}, 1 Gbit/s"
STREAM = "a plain TCP stream"
_FAST = f"{_NODES}, 10 Gbit/s"
_PEERS = {"gloo": "Gloo", "mpi": "MPI"}


def command(module: str, *arguments: str, quick: bool = False) -> dict[str, Any]:
    """Run a benchmark that makes the nodes and starts the ranks itself, and return its JSON.

    Without a result, `missing` says why. A quick run has none.
    """
    if quick:
        return {"missing": "not in a quick run"}
    if importlib.util.find_spec(module) is None:
        return {"missing": f"there is no {module}"}
    with tempfile.TemporaryDirectory(prefix="roundelay-bench-") as folder:
        line = [sys.executable, "-m", module, "--output", folder, *arguments]
        ended = subprocess.run(line, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        result = Path(folder) / f"{module.rpartition('.')[2]}.json"
        if ended.returncode != 0 or not result.exists():
            said = (ended.stderr.strip() or ended.stdout.strip()).splitlines()
            return {"missing": said[-1] if said else f"exit code {ended.returncode}"}
        found: dict[str, Any] = json.loads(result.read_text())
        return found


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """Run the benchmark as a command."""
    return command(_MODULE, quick=quick)


def results(found: dict[str, Any]) -> list[Result]:
    """Compare bytes and time with a plain TCP stream of as many bytes as must cross."""
    if "missing" in found:
        return [Result(_WORK, why=found["missing"])]
    made = []
    for cell in found["cells"]:
        size = show.size_text(cell["bytes"])
        work = f"{size} fp32, {_WORK}"
        sent, stream = (float(cell["sent"][who]) for who in ("roundelay", "stream"))
        over = Estimate(sent / stream)
        bytes_sent = Result(f"{work}, bytes sent", "B", Estimate(sent), (), Estimate(stream), STREAM, over)
        samples = Samples(cell["seconds"], cell["others"])
        headline = f"{size} fp32, {_NODES}"
        time = compare(f"{work}, time", samples, {}, floor=("stream", STREAM), headline=headline)
        made += [bytes_sent, time]
    return made


def measure_fast(run: Run, quick: bool) -> dict[str, Any]:
    """Run the benchmark at 10 Gbit/s, beside Gloo and MPI."""
    return command(_MODULE, "--mbit", "10000", "--peers", "--sizes", "25M", quick=quick)


def fast_results(found: dict[str, Any]) -> list[Result]:
    """Compare the time, and the CPU time of all ranks, with the peers' and a plain TCP stream's."""
    if "missing" in found:
        return [Result(_FAST, why=found["missing"])]
    made = []
    for cell in found["cells"]:
        work = f"{show.size_text(cell['bytes'])} fp32, {_FAST}"
        for what, values in ((", time", cell["seconds"]), (", CPU time of all ranks", cell["cpu"])):
            samples = Samples(values, cell["others"])
            made.append(compare(work + what, samples, _PEERS, floor=("stream", STREAM)))
    return made
