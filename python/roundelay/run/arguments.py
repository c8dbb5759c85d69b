"""The command line of `roundelayrun`: horovodrun's flags, with their meaning."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from typing import Any, NoReturn

from roundelay.run.errors import UsageError

EPILOG = """examples:
  roundelayrun -np 4 python train.py
  roundelayrun -np 8 -H node1:4,node2:4 python train.py
  roundelayrun -np 2 --dry-run python train.py        show the line that starts the ranks, and stop"""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Raises UsageError instead of printing the usage and leaving."""
        raise UsageError(f"{message} (see {self.prog} --help)")


def number(kind: Callable[[str], float], least: float, unit: str) -> Callable[[str], Any]:
    """An argument type: a number of at least `least`."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = least - 1
        if not value >= least:
            raise argparse.ArgumentTypeError(f"{text!r} is not {unit}, at least {least}")
        return value

    return read


def make_parser(prog: str) -> Parser:
    """The parser; its result has the flags' long names as attributes."""
    parser = Parser(
        prog=prog,
        description="Starts NUM_PROC copies of a program as the ranks of one job.",
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
        "--verbose", action="store_true", help="show the line that starts the ranks, and each one's place"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show the line that starts the ranks, and stop"
    )
    parser.add_argument(
        "--output-filename",
        metavar="DIR",
        help="also write each rank's output to DIR/rank.N/stdout and DIR/rank.N/stderr",
    )
    parser.add_argument(
        "--as-horovod",
        action="store_true",
        help="in the ranks and their children 'import horovod' means Roundelay",
    )
    parser.add_argument(
        "--start-timeout",
        type=number(int, 1, "a number of seconds"),
        metavar="S",
        help="seconds in which all ranks must have started (default 30)",
    )
    parser.add_argument(
        "--mpi-args",
        type=shlex.split,
        default=[],
        metavar="ARGS",
        help='more for mpirun, as one word: --mpi-args="--mca btl self,sm"',
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--mpi", action="store_true", help="start the ranks with mpirun (default on several hosts)"
    )
    how.add_argument(
        "--gloo",
        action="store_true",
        help="start the ranks without MPI (default on this machine)",
    )
    where = parser.add_argument_group("hosts (default: this machine)").add_mutually_exclusive_group()
    where.add_argument("-H", "--hosts", metavar="LIST", help="hosts and slots: h1:2,h2:4")
    where.add_argument("-hostfile", "--hostfile", metavar="FILE", help="a file of lines like 'h1 slots=2'")
    _add_knobs(parser)
    parser.add_argument("program", nargs=argparse.REMAINDER, help="what every rank runs")
    return parser


def _add_knobs(parser: Parser) -> None:
    """Flags that set a ROUNDELAY_ variable for the ranks."""
    tuning = parser.add_argument_group("tuning")
    tuning.add_argument(
        "--fusion-threshold-mb",
        type=number(int, 0, "a number of MiB"),
        metavar="MB",
        help="a fused operation has at most this many MiB; 0: no fusion",
    )
    tuning.add_argument(
        "--cycle-time-ms",
        type=number(float, 0, "a number of ms"),
        metavar="MS",
        help="ready tensors wait for others at most this long",
    )
    tuning.add_argument(
        "--cache-capacity", type=number(int, 0, "a number"), metavar="N", help="names in the response cache"
    )
    tuning.add_argument(
        "--autotune", action="store_true", default=None, help="try sizes of buckets in the first steps"
    )
    tuning.add_argument("--no-autotune", action="store_false", dest="autotune", help="do not (default)")
    tuning.add_argument("--autotune-log-file", metavar="FILE", help="append what was tried, as JSON lines")
    tuning.add_argument(
        "--autotune-steps-per-sample",
        type=number(int, 1, "a number of steps"),
        metavar="N",
        help="steps that each size is tried for (default 10)",
    )
    timeline = parser.add_argument_group("timeline")
    timeline.add_argument(
        "--timeline-filename", metavar="FILE", help="record the job's timeline (see roundelay timeline)"
    )
    timeline.add_argument(
        "--timeline-mark-cycles", action="store_true", default=None, help="mark each order in it"
    )
    timeline.add_argument(
        "--no-timeline-mark-cycles",
        action="store_false",
        dest="timeline_mark_cycles",
        help="do not (default)",
    )
    stall = parser.add_argument_group("ranks that submit nothing")
    stall.add_argument("--no-stall-check", action="store_true", default=None, help="do not warn of them")
    stall.add_argument("--stall-check", action="store_false", dest="no_stall_check", help="warn (default)")
    seconds = number(float, 0, "a number of seconds")
    stall.add_argument(
        "--stall-check-warning-time-seconds", type=seconds, metavar="S", help="when to warn (default 60)"
    )
    stall.add_argument(
        "--stall-check-shutdown-time-seconds", type=seconds, metavar="S", help="when to fail (default: never)"
    )
    logging = parser.add_argument_group("log")
    logging.add_argument(
        "--log-level",
        type=str.upper,
        choices=["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"],
        help="least severe messages shown (default WARNING)",
    )
    logging.add_argument(
        "--log-without-timestamp", action="store_true", default=None, help="without the time of day"
    )
    logging.add_argument(
        "--log-with-timestamp", action="store_false", dest="log_without_timestamp", help="with it (default)"
    )


# Attribute of the parsed arguments, variable of the ranks.
KNOBS = {
    "start_timeout": "ROUNDELAY_START_TIMEOUT",
    "fusion_threshold_mb": "ROUNDELAY_FUSION_THRESHOLD",
    "cycle_time_ms": "ROUNDELAY_CYCLE_TIME",
    "cache_capacity": "ROUNDELAY_CACHE_CAPACITY",
    "autotune": "ROUNDELAY_AUTOTUNE",
    "autotune_log_file": "ROUNDELAY_AUTOTUNE_LOG",
    "autotune_steps_per_sample": "ROUNDELAY_AUTOTUNE_STEPS_PER_SAMPLE",
    "timeline_filename": "ROUNDELAY_TIMELINE",
    "timeline_mark_cycles": "ROUNDELAY_TIMELINE_MARK_CYCLES",
    "no_stall_check": "ROUNDELAY_STALL_CHECK_DISABLE",
    "stall_check_warning_time_seconds": "ROUNDELAY_STALL_CHECK_TIME_SECONDS",
    "stall_check_shutdown_time_seconds": "ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS",
    "log_level": "ROUNDELAY_LOG_LEVEL",
    "log_without_timestamp": "ROUNDELAY_LOG_HIDE_TIME",
}


def knob_variables(arguments: argparse.Namespace) -> dict[str, str]:
    """The variables that the given flags set."""
    variables = {}
    for attribute, variable in KNOBS.items():
        value = getattr(arguments, attribute)
        if value is None:
            continue
        if attribute == "fusion_threshold_mb":
            value *= 1 << 20
        elif attribute == "log_level":
            value = value.lower()
        elif isinstance(value, bool):
            value = int(value)
        variables[variable] = f"{value:g}" if isinstance(value, float) else str(value)
    return variables
