"""2 nodes of 2 ranks at 1 Gbit/s: what benchmarks.two_nodes finds, where it can make them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import show
from benchmarks.table.line import Goal, Line, missing
from benchmarks.table.run import Run

_MODULE = "benchmarks.two_nodes"
_BYTES, _TIME = 1.02, 1.03
_LIMIT_S = 600
_WORK = "2 nodes x 2 ranks, 1 Gbit/s"


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """Run it by itself: it makes nodes, and starts ranks in them, in its own way."""
    if quick:
        return {"missing": "not in a quick run"}
    if importlib.util.find_spec(_MODULE) is None:
        return {"missing": f"there is no {_MODULE}"}
    with tempfile.TemporaryDirectory(prefix="roundelay-bench-") as folder:
        command = [sys.executable, "-m", _MODULE, "--output", folder]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        result = Path(folder) / "two_nodes.json"
        if ended.returncode != 0 or not result.exists():
            said = (ended.stderr.strip() or ended.stdout.strip()).splitlines()
            return {"missing": said[-1] if said else f"exit code {ended.returncode}"}
        found: dict[str, Any] = json.loads(result.read_text())
        return found


def lines(found: dict[str, Any]) -> list[Line]:
    """Bytes and time beside a plain TCP stream of as many bytes as must cross."""
    if "missing" in found:
        return [missing(_WORK, found["missing"])]
    made = []
    for cell in found["cells"]:
        work = f"{show.size_text(cell['bytes'])} fp32, {_WORK}"
        seconds = {who: cell["seconds"][who]["median"] for who in ("roundelay", "stream")}
        made.append(_beside_stream(f"{work}, bytes sent", cell["sent"], "B", _BYTES))
        made.append(_beside_stream(f"{work}, time", seconds, "s", _TIME))
    return made


def _beside_stream(work: str, found: dict[str, float], unit: str, limit: float) -> Line:
    own, stream = (show.quantity(found[who], unit) for who in ("roundelay", "stream"))
    ratio = found["roundelay"] / found["stream"]
    return Line(work, own, "a plain TCP stream", stream, ratio, "x", Goal(limit, at_least=False))
