"""All checks of CI, phase by phase: `.ci/run`. Needs a Python and nothing else.

A phase that fails does not end the others, unless they need it. What failed by a limit of time alone runs
once more at the end, by itself, because a busy machine stretches any time: if it passes then, it is named as
flaky. Every other failure stays one. The last lines compare the phases' times with `.ci/times.json`.

What takes long and repeats itself is drawn by the commit: one of the sanitizers, an eighth of the slow Python
tests. `make nightly` has all of it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import outcomes

ROOT = Path(__file__).resolve().parent.parent
OUTCOMES = ROOT / "build" / "outcomes"
TIMES = ROOT / ".ci" / "times.json"  # seconds of each phase, copied from a run of CI
MOST_RERUNS = 3
SANITIZERS = ("tsan", "asan")  # a build of one takes longer than all Python tests


@dataclass(frozen=True)
class Phase:
    """A command. `needs` names the phase without which it makes no sense."""

    name: str
    command: tuple[str, ...]
    needs: str | None = "train"
    rerun: str | None = None  # "ctest" or "pytest": who runs its tests and says what failed


def make(*words: str) -> tuple[str, ...]:
    """Return the command for a target of make."""
    return ("make", *words)


# The slow Python tests repeat others with other parameters. Each time an eighth of them is enough, which the
# commit chooses (tests/python/support/short_runs.py).
CHOSEN = "not slow and not nightly or drawn"

# What a newcomer does comes first, in an environment that has seen nothing else.
PHASES = (
    Phase("train", make("train"), needs=None),
    Phase("wheel", make("wheel-check")),
    Phase("lint", make("lint")),
    Phase("docs", make("docs")),
    Phase("cuda", make("cuda")),
    Phase("mpi", make("mpi-check")),
    Phase("cpp", make("test-cpp", "TESTS=not nightly"), rerun="ctest"),
    Phase("python", make("test-python", f"TESTS={CHOSEN}"), rerun="pytest"),
    Phase("tsan", make("tsan", "QUICK_TESTS=1"), rerun="ctest"),
    Phase("asan", make("asan", "QUICK_TESTS=1"), rerun="ctest"),
)
FIRST_OF_TESTS = "cpp"


@dataclass(frozen=True)
class Outcome:
    """The end of a phase. `late` are the tests that failed by a limit of time, if no other fault was seen."""

    passed: bool
    seconds: float
    late: tuple[str, ...] = ()


def run(phase: Phase) -> Outcome:
    """Run a phase, whose output is shown."""
    print(f"=== {phase.name}", flush=True)
    file = OUTCOMES / f"{phase.name}.xml"
    file.unlink(missing_ok=True)
    begin = time.monotonic()
    passed = succeeds(phase.command, OUTCOMES=str(file) if phase.rerun else "")
    seconds = time.monotonic() - begin
    failed = outcomes.read(file) if phase.rerun and not passed else []
    late = tuple(failure.test for failure in failed) if all(failure.late for failure in failed) else ()
    print(f"=== {phase.name}: {'' if passed else 'FAILED after '}{seconds:.0f} s", flush=True)
    return Outcome(passed, seconds, late)


@functools.cache
def commit() -> str:
    """Return the commit that is checked."""
    words = ("git", "rev-parse", "HEAD")
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def succeeds(command: Sequence[str], **more: str) -> bool:
    """Return whether the command ends with 0."""
    environment = {**os.environ, "CI": "true", "DRAW_FOR": commit(), **more}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL) as process:
        return process.wait() == 0


def once_more(phase: Phase, test: str) -> bool:
    """Return whether a test passes alone."""
    print(f"=== {test}: once more", flush=True)
    if phase.rerun == "pytest":
        return succeeds((".venv/bin/python", "-m", "pytest", "-m", "", test))
    build = "dev" if phase.name == "cpp" else phase.name
    chosen = ("--output-on-failure", "--no-tests=error", "-R", f"^{re.escape(test)}$")
    return succeeds((".venv/bin/ctest", "--test-dir", f"build/{build}", *chosen))


@contextlib.contextmanager
def building(targets: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Build in the background inside the block, with what tests, which often wait, leave of the cores.

    What fails here fails again, and is shown, in its own phase.
    """
    quietly = "{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec nice -n 19 make " + " ".join(targets)
    with (OUTCOMES / "builds.log").open("w") as log:
        builds = subprocess.Popen(
            ["sh", "-c", quietly],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield builds
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(builds.pid, signal.SIGKILL)
        builds.wait()


def drawn() -> list[Phase]:
    """Return the phases of this commit: all but one of the sanitizers."""
    sanitizer = SANITIZERS[int(commit(), 16) % len(SANITIZERS)]
    return [phase for phase in PHASES if phase.name not in SANITIZERS or phase.name == sanitizer]


def run_all(phases: Sequence[Phase]) -> dict[str, Outcome]:
    """Run the phases in order, without those that need one that failed. Returns the outcomes by name."""
    ended: dict[str, Outcome] = {}
    builds: subprocess.Popen[bytes] | None = None
    with contextlib.ExitStack() as beside:
        for phase in phases:
            if phase.needs is not None and not (phase.needs in ended and ended[phase.needs].passed):
                print(f"=== {phase.name}: left out, because {phase.needs} failed", flush=True)
                continue
            if phase.name == FIRST_OF_TESTS:
                names = [f"build-{other.name}" for other in phases if other.name in SANITIZERS]
                builds = beside.enter_context(building(names))
            if phase.name in SANITIZERS and builds is not None:
                builds.wait()
            ended[phase.name] = run(phase)
    return ended


def judge(phases: Sequence[Phase], ended: Mapping[str, Outcome]) -> tuple[bool, list[str]]:
    """Return whether CI passes, and the tests that passed the second time. It runs those now."""
    failed = {name: outcome for name, outcome in ended.items() if not outcome.passed}
    late = [(phase, test) for phase in phases if phase.name in failed for test in failed[phase.name].late]
    if len(late) > MOST_RERUNS:
        print(f"=== {len(late)} tests took too long, {MOST_RERUNS} may: none runs once more", flush=True)
        late = []
    again = {(phase.name, test): once_more(phase, test) for phase, test in late}
    flaky = [test for (_, test), passed in again.items() if passed]
    mended = {
        name
        for name, outcome in failed.items()
        if outcome.late and all(again.get((name, test)) for test in outcome.late)
    }
    return len(ended) == len(phases) and mended == set(failed), flaky


def table(ended: Mapping[str, Outcome], before: Mapping[str, float]) -> list[str]:
    """Return a line for each phase: its seconds, those of the last time, and how it ended."""
    lines = [f"{'phase':8}{'s':>6}{'before':>8}"]
    for name, outcome in ended.items():
        last = f"{before[name]:.0f}" if name in before else "-"
        lines.append(f"{name:8}{outcome.seconds:6.0f}{last:>8}{'' if outcome.passed else '  FAILED'}")
    return lines


def main() -> int:
    """Run everything; return the exit code."""
    begin = time.monotonic()
    OUTCOMES.mkdir(parents=True, exist_ok=True)
    phases = drawn()
    ended = run_all(phases)
    passed, flaky = judge(phases, ended)
    seconds = {name: round(outcome.seconds) for name, outcome in ended.items()}
    seconds["all"] = round(time.monotonic() - begin)
    before = json.loads(TIMES.read_text())
    print("\n".join(table({**ended, "all": Outcome(passed, seconds["all"])}, before)))
    print(f"{json.dumps(seconds)} is what .ci/times.json has of the last time")
    for test in flaky:
        print(f"flaky: {test}: see tests/flaky.md")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
