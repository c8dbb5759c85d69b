"""Measures UCX and plain sockets as data planes between two nodes, turn by turn, and tries their behaviour.

The nodes are network namespaces of this machine (tests/rig), which need root. UCX is the wheel libucx-cu12 or
the system's; without it only the sockets are measured.
"""

from __future__ import annotations

import argparse
import datetime
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, show
from benchmarks.report import page
from benchmarks.report import wires as report
from benchmarks.wires import speed, strangers, trials
from benchmarks.wires.programs import End, build, find_ucx
from tests.rig import Rig

_PARTS = ("speed", "trials", "strangers")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wires", description=__doc__)
    parser.add_argument("--parts", choices=_PARTS, nargs="+", default=list(_PARTS), help="default: all")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each measurement (default: 7)")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    parser.add_argument(
        "--docs", action="store_true", help="keep these parts, and write the page of the docs"
    )
    return parser


def _tried(programs: Mapping[str, Path]) -> dict[str, Any]:
    return _each(trials.TRIALS, programs, lambda _: list(trials.TRIALS))


def _attacked(programs: Mapping[str, Path]) -> dict[str, Any]:
    attacks = {
        what: lambda rig, program, what=what: strangers.attacked(rig, program, what)
        for what in strangers.ATTACKS
    }
    return _each(attacks, programs, strangers.attacks_on)


def _each(
    actions: Mapping[str, Callable[[Rig, Path], dict[str, Any]]],
    programs: Mapping[str, Path],
    fitting: Callable[[str], Sequence[str]],
) -> dict[str, Any]:
    """Do what fits each prototype; return the outcomes by action and prototype."""
    found: dict[str, Any] = {what: {} for what in actions}
    with Rig(2, trials.MBIT) as rig:
        for what, act in actions.items():
            for name, program in programs.items():
                if what in fitting(name):
                    print(f"{what}: {name}", flush=True)
                    found[what][name] = act(rig, program)
    return found


def _versions(programs: Mapping[str, Path]) -> dict[str, str]:
    versions = {}
    with Rig(1, None) as rig:
        for name, program in programs.items():
            end = End(rig, 0, program)
            versions[name] = end.version
            end.close()
    return versions


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    launch.require_rig("two nodes")
    if find_ucx() is None:
        print(
            "no UCX: pip install libucx-cu12, or apt-get install libucx-dev; the sockets are measured alone"
        )
    found: dict[str, Any] = {"day": datetime.datetime.now(datetime.timezone.utc).date().isoformat()}
    found["machine"] = launch.machine(launch.find_launcher())
    with tempfile.TemporaryDirectory(prefix="roundelay-wires-") as folder:
        programs = build(Path(folder))
        found["versions"] = _versions(programs)
        if "trials" in arguments.parts:
            found["trials"] = _tried(programs)
        if "strangers" in arguments.parts:
            found["strangers"] = _attacked(programs)
        if "speed" in arguments.parts:
            found["speed"] = speed.measured(programs, speed.MBIT, arguments.rounds)
    show.save(arguments.output / "wires.json", found)
    if arguments.docs:
        kept = page.read(report.STORED) if report.STORED.exists() else {}
        found = {**kept, **found}
        found.pop("command", None)  # of the last time
        show.save(report.STORED, found)
        report.PART.write(report.text(found))
    else:
        print(report.text(found))


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
