"""Parses the command line of `roundelayrun`: horovodrun's flags, with their meaning."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from typing import NoReturn

from roundelay.run.arguments import config_file, knobs, unsupported_flags
from roundelay.run.arguments.knobs import number
from roundelay.run.errors import UsageError
from roundelay.run.modes import choice

EPILOG = """examples:
  roundelayrun -np 4 python train.py
  roundelayrun -np 8 -H node1:4,node2:4 python train.py
  roundelayrun -np 2 --dry-run python train.py        show the line that starts the ranks, and stop"""


_UNKNOWN = "unrecognized arguments: "  # argparse's words
_OTHER_LAUNCHERS = {
    "--nproc-per-node": "did you mean -np?",
    "--nproc_per_node": "did you mean -np?",
    "--oversubscribe": "more ranks than cores need no flag",
    "--allow-run-as-root": "root needs no flag",
}


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Raises UsageError instead of printing the usage and leaving."""
        hint = ""
        if message.startswith(_UNKNOWN):
            hint = self._instead_of(message.removeprefix(_UNKNOWN).split()[0].partition("=")[0])
        raise UsageError(f"{message}{hint} (see {self.prog} --help)")

    def _instead_of(self, flag: str) -> str:
        if flag in _OTHER_LAUNCHERS:
            return f": {_OTHER_LAUNCHERS[flag]}"
        known = list(self._option_string_actions)
        longer = [one for one in known if len(flag) > len("--x") and one.startswith(flag)]
        near = longer or difflib.get_close_matches(flag, known, 1)
        return f": did you mean {near[0]}?" if near else ""


def parse(prog: str, argv: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line over a --config-file. The result's attributes are the flags' long names."""
    parser = make_parser(prog)
    given = parser.parse_args(argv)
    if given.config_file is None:
        return given
    words = config_file.words(given.config_file)
    try:
        said = parser.parse_args(words)
    except UsageError as error:
        raise UsageError(f"{given.config_file}: {error}") from error
    return parser.parse_args(argv, said)  # the command line comes after the file, and wins


def make_parser(prog: str) -> Parser:
    """Returns the parser; its result has the flags' long names as attributes."""
    parser = Parser(
        prog=prog,
        description="Starts N copies of a program as the ranks of one job.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        usage=f"{prog} -np N [options] program [arguments]",
    )
    parser.add_argument("-v", "--version", action="store_true", help="show the version and stop")
    parser.add_argument(
        "-cb", "--check-build", action="store_true", help="show what this build can use and stop"
    )
    parser.add_argument(
        "-np", "--num-proc", type=number(int, 1, "a number of ranks"), metavar="N", help="ranks to start"
    )
    parser.add_argument(
        "--as-horovod",
        action="store_true",
        help="'import horovod' gives Roundelay, in the ranks and their children",
    )
    parser.add_argument(
        "--start-timeout",
        type=number(float, 0, "a number of seconds", above=True),
        metavar="S",
        help="seconds in which all ranks must have started (default 30)",
    )
    parser.add_argument(
        "--config-file",
        metavar="YAML",
        help="a file of settings, in horovodrun's layout; flags override it",
    )
    _add_output(parser)
    choice.add_flags(parser).add_argument(
        "--tcp", action="store_true", help="use only TCP between hosts, even if there are other networks"
    )
    _add_hosts(parser)
    _add_elastic(parser)
    knobs.add(parser)
    unsupported_flags.add(parser)
    parser.add_argument("program", nargs=argparse.REMAINDER, help="the program of every rank")
    return parser


def _add_output(parser: Parser) -> None:
    output = parser.add_argument_group("output")
    output.add_argument(
        "--verbose",
        action="store_true",
        help="show the command that starts the ranks, and where each one runs",
    )
    output.add_argument(
        "--dry-run", action="store_true", help="show the line that starts the ranks, and stop"
    )
    output.add_argument(
        "--output-filename",
        metavar="DIR",
        help="also write each rank's output to DIR/rank.N/stdout and DIR/rank.N/stderr",
    )
    output.add_argument(
        "-prefix-timestamp",
        "--prefix-output-with-timestamp",
        action="store_true",
        help="begin each line of the ranks' output with the time of day",
    )


def _add_hosts(parser: Parser) -> None:
    group = parser.add_argument_group("hosts (default: this machine)")
    where = group.add_mutually_exclusive_group()
    where.add_argument("-H", "--hosts", metavar="LIST", help="hosts and slots: h1:2,h2:4")
    where.add_argument("-hostfile", "--hostfile", metavar="FILE", help="a file of lines like 'h1 slots=2'")
    group.add_argument(
        "-p",
        "--ssh-port",
        type=number(int, 1, "a port"),
        metavar="PORT",
        help="the port of the hosts' ssh (default: ssh's configuration)",
    )
    group.add_argument("-i", "--ssh-identity-file", metavar="FILE", help="the private key for ssh")
    group.add_argument(
        "--network-interfaces",
        "--network-interface",
        dest="network_interfaces",
        action="extend",
        default=[],
        type=lambda text: [name for name in text.split(",") if name],
        metavar="NAMES",
        help="the interfaces between hosts, comma separated (default: those that face the other hosts)",
    )


def _add_elastic(parser: Parser) -> None:
    group = parser.add_argument_group("elastic jobs (ranks come and go while the program trains)")
    ranks, seconds = number(int, 1, "a number of ranks"), number(float, 0, "a number of seconds")
    group.add_argument(
        "--min-np",
        "--min-num-proc",
        dest="min_np",
        type=ranks,
        metavar="N",
        help="the fewest ranks to go on with",
    )
    group.add_argument(
        "--max-np",
        "--max-num-proc",
        dest="max_np",
        type=ranks,
        metavar="N",
        help="the most ranks (default: as many as the hosts have slots)",
    )
    group.add_argument(
        "--host-discovery-script",
        metavar="COMMAND",
        help="prints the hosts of now, as 'name:slots' or 'name'",
    )
    group.add_argument(
        "--slots-per-host",
        type=ranks,
        default=1,
        metavar="N",
        help="slots where the script prints none (default 1)",
    )
    group.add_argument(
        "--elastic-timeout",
        type=seconds,
        metavar="S",
        help="seconds to wait for --min-np ranks (default 600, or HOROVOD_ELASTIC_TIMEOUT)",
    )
    group.add_argument(
        "--reset-limit",
        type=number(int, 0, "a number of times"),
        metavar="N",
        help="how often the ranks may change (default: any number)",
    )
    group.add_argument(
        "--blacklist-cooldown-range",
        type=seconds,
        nargs=2,
        default=(60.0, 3600.0),
        metavar=("MIN", "MAX"),
        help="seconds in which a host gets no rank after three failures: MIN, then doubling up to MAX",
    )
