"""The command `roundelay`, with a subcommand for each task."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roundelay import __version__
from roundelay._internal.closed_output import nobody_reads


@dataclass(frozen=True)
class Command:
    """A subcommand: its one-line help, and the module whose `main(argv)` returns the exit status."""

    summary: str
    module: str


COMMANDS = {
    "run": Command("start a program as the ranks of a job (the same as roundelayrun)", "roundelay.run.cli"),
    "tune": Command(
        "measure this cluster's algorithms, and write a tuning file", "roundelay.tuning.cluster.cli"
    ),
    "timeline": Command("sum up and draw a job's timeline", "roundelay.timeline.cli"),
    "plan": Command("predict training on other machines, and what pays there", "roundelay.plan.cli"),
    "emulate": Command(
        "run a job on nodes and a slow network that are emulated here", "roundelay.emulate.cli"
    ),
    "doctor": Command("check this installation, and say how to fix any problem", "roundelay.doctor.cli"),
}


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser of the words before a subcommand's own arguments."""
    lines = [f"  {name:<10}{command.summary}" for name, command in COMMANDS.items()]
    parser = argparse.ArgumentParser(
        prog="roundelay",
        description="Gradient synchronisation for data-parallel PyTorch training.",
        epilog="\n".join(["commands (each has its own --help):", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="roundelay COMMAND [arguments]",
        allow_abbrev=False,
    )
    parser.add_argument("-v", "--version", action="version", version=__version__)
    parser.add_argument("-cb", "--check-build", action="store_true", help="show what this build can use")
    parser.add_argument(
        "--include-dir", action="store_true", help="show the folder of the headers for your own techniques"
    )
    parser.add_argument("command", nargs="?", choices=list(COMMANDS), metavar="COMMAND", help="see below")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line `argv` (default: this process's) and returns the exit status."""
    try:
        try:
            return _run(list(sys.argv[1:] if argv is None else argv))
        finally:
            sys.stdout.flush()  # here, where an error is quiet, and not at the interpreter's end
    except BrokenPipeError:
        return nobody_reads()


def _run(words: list[str]) -> int:
    parser = make_parser()
    given = parser.parse_args(words[:1])
    if given.check_build:
        from roundelay.doctor.build import check_build

        print(check_build())
        return 0
    if given.include_dir:
        print(Path(__file__).parent / "include")
        return 0
    if given.command is None:
        parser.print_help()
        return 2
    status: int = importlib.import_module(COMMANDS[given.command].module).main(words[1:])
    return status


if __name__ == "__main__":
    sys.exit(main())
