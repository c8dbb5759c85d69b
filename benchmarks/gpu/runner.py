"""Runs a step: a command with a time limit. The last JSON object on its stdout is its measurement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.processes import end
from benchmarks.table.line import Line

ROOT = Path(__file__).resolve().parents[2]
_SAID = 20  # lines of a failed step's output that are kept
_POLL_S = 0.5  # so often a running step looks whether it shall stop


def _no_lines(_: Mapping[str, Any]) -> list[Line]:
    return []


@dataclass(frozen=True)
class Step:
    """One check.

    In `command`, {build} is the build's folder and {device} the kind of device. `ranks` is the number of
    processes, which roundelayrun starts with `flags`; each must print `says`. `dry` is the reason why a
    machine without a GPU cannot run it. `lines` compares its measurements with the goals. If a `vital` step
    fails, or has nothing to measure, the following ones have no meaning.
    """

    name: str
    budget_s: float
    command: Sequence[str]
    ranks: int = 0
    flags: Sequence[str] = ("--gloo",)
    says: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    dry: str = ""
    lines: Callable[[Mapping[str, Any]], list[Line]] = _no_lines
    vital: bool = False


@dataclass(frozen=True)
class Phase:
    """Steps that run `at_once` side by side, and end within `end_s` seconds of the first phase's beginning.

    What is timed needs the machine for itself.
    """

    steps: Sequence[Step]
    end_s: float
    at_once: int = 1


@dataclass(frozen=True)
class Check:
    """The outcome of a step. `ok` is None if it was not run or not measured; `message` says why."""

    name: str
    ok: bool | None
    seconds: float = 0.0
    figures: Mapping[str, Any] | None = None
    message: str = ""


@dataclass(frozen=True)
class Place:
    """The environment of all steps: the kind of device, the build, the folder for output, variables."""

    device: str
    build: Path
    output: Path
    environment: Mapping[str, str]

    def words(self, step: Step) -> list[str]:
        """Make the step's command line."""
        here = (("{build}", str(self.build)), ("{device}", self.device))
        filled = list(step.command)
        for mark, text in here:
            filled = [word.replace(mark, text) for word in filled]
        if not step.ranks:
            return filled
        return [sys.executable, "-m", "roundelay.run.cli", "-np", str(step.ranks), *step.flags, *filled]


def figures(output: str) -> dict[str, Any] | None:
    """Return the JSON object that begins a line and ends the output; None if there is none."""
    lines = output.splitlines()
    for first in reversed(range(len(lines))):
        if lines[first].startswith("{"):
            try:
                found = json.loads("\n".join(lines[first:]))
            except ValueError:
                continue
            return found if isinstance(found, dict) else None
    return None


def judged(step: Step, seconds: float, output: str) -> Check:
    """Return whether the goals of a successful step are met."""
    found = figures(output)
    lines = step.lines(found) if found is not None else []
    missed = [line for line in lines if line.met is False]
    absent = [line for line in lines if line.value is None]
    said = "; ".join(f"{line.work}: {' '.join(filter(None, line.cells()[1:5]))}" for line in missed or absent)
    ok = False if missed else None if absent else True
    return Check(step.name, ok, seconds, found, said)


def _why_bad(process: subprocess.Popen[bytes], limit_s: float, stop: threading.Event) -> str:
    """Wait for the process. Return what is wrong with its end; nothing if all is well."""
    deadline = time.monotonic() + limit_s
    while not stop.is_set():
        left = deadline - time.monotonic()
        try:
            code = process.wait(max(0.0, min(left, _POLL_S)))
        except subprocess.TimeoutExpired:
            if left <= _POLL_S:
                return f"did not end within {limit_s:.0f} s, and was ended"
        else:
            return f"exit code {code}" if code else ""
    return "was stopped"


def run(step: Step, place: Place, limit_s: float, stop: threading.Event | None = None) -> Check:
    """Run the step for at most its time limit, or `limit_s` seconds if that is less, or until `stop`."""
    limit_s = min(limit_s, step.budget_s)
    ranks = {"RANKS_LIMIT_S": str(max(1.0, limit_s - 5))}  # hanging ranks dump their stacks first
    log = place.output / f"{step.name.replace(' ', '_').replace(',', '')}.txt"
    begin = time.monotonic()
    with log.open("wb") as out:
        try:
            process = subprocess.Popen(
                place.words(step),
                cwd=ROOT,
                env={**os.environ, **ranks, **step.environment, **place.environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return Check(step.name, False, message=f"cannot be started: {error}")
        try:
            why = _why_bad(process, limit_s, stop or threading.Event())
        finally:
            end(process)
    seconds = round(time.monotonic() - begin, 1)
    output = log.read_text(errors="replace")
    if not why and output.count(step.says) < step.ranks:
        why = f"only {output.count(step.says)} of {step.ranks} ranks said {step.says!r}"
    if why:
        said = [line for line in output.splitlines() if line.strip()]
        return Check(step.name, False, seconds, message="\n".join([why, *said[-_SAID:]]))
    return judged(step, seconds, output)
