"""Flags of `roundelayrun` that set a ROUNDELAY_ variable for the ranks."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def number(
    kind: Callable[[str], float], least: float, unit: str, *, above: bool = False
) -> Callable[[str], Any]:
    """Returns an argument type: a number of at least `least`, or above it. unit: names it in the error."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = least - 1
        if not (value > least if above else value >= least):
            limit = f"above {least}" if above else f"at least {least}"
            raise argparse.ArgumentTypeError(f"{text!r} is not {unit}, {limit}")
        return value

    return read


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    _add_tuning(parser)
    _add_timeline(parser)
    _add_stall(parser)
    _add_log(parser)


def _add_tuning(parser: argparse.ArgumentParser) -> None:
    tuning = parser.add_argument_group("tuning")
    tuning.add_argument(
        "--fusion-threshold-mb",
        type=number(int, 0, "a number of MiB"),
        metavar="MB",
        help="the largest fused operation in MiB; 0: no fusion",
    )
    tuning.add_argument(
        "--cycle-time-ms",
        type=number(float, 0, "a number of ms"),
        metavar="MS",
        help="the longest time that ready tensors wait for others",
    )
    tuning.add_argument(
        "--cache-capacity",
        type=number(int, 0, "a number"),
        metavar="N",
        help="the number of names in the response cache",
    )
    tuning.add_argument(
        "--tuning",
        metavar="FILE",
        help="choose algorithms by this file of 'roundelay tune' (docs/techniques/topology.md)",
    )
    tuning.add_argument(
        "--strategy",
        metavar="TEXT",
        help="the strategy of optimizers that are given none, such as dense:wire=bf16 (docs/strategies.md)",
    )
    tuning.add_argument(
        "--pointer-cache",
        action="store_true",
        help="remember where GPUs' memory lies, to answer MPI (docs/techniques/device_mpi.md)",
    )
    tuning.add_argument(
        "--autotune", action="store_true", default=None, help="try sizes of buckets in the first steps"
    )
    tuning.add_argument("--no-autotune", action="store_false", dest="autotune", help="do not (default)")
    tuning.add_argument(
        "--autotune-log-file", metavar="FILE", help="append each setting that was tried, as a JSON line"
    )
    tuning.add_argument(
        "--autotune-steps-per-sample",
        type=number(int, 1, "a number of steps"),
        metavar="N",
        help="the steps for which each size is tried (default 10)",
    )


def _add_timeline(parser: argparse.ArgumentParser) -> None:
    timeline = parser.add_argument_group("timeline")
    timeline.add_argument(
        "--timeline-filename", metavar="FILE", help="record the job's timeline (see roundelay timeline)"
    )
    timeline.add_argument(
        "--timeline-mark-cycles", action="store_true", default=None, help="mark each order in the timeline"
    )
    timeline.add_argument(
        "--no-timeline-mark-cycles",
        action="store_false",
        dest="timeline_mark_cycles",
        help="do not (default)",
    )


def _add_stall(parser: argparse.ArgumentParser) -> None:
    stall = parser.add_argument_group("ranks that submit nothing")
    stall.add_argument("--no-stall-check", action="store_true", default=None, help="do not warn about them")
    stall.add_argument("--stall-check", action="store_false", dest="no_stall_check", help="warn (default)")
    seconds = number(float, 0, "a number of seconds")
    stall.add_argument(
        "--stall-check-warning-time-seconds",
        type=number(float, 0, "a number of seconds", above=True),
        metavar="S",
        help="when to warn (default 60)",
    )
    stall.add_argument(
        "--stall-check-shutdown-time-seconds", type=seconds, metavar="S", help="when to fail (default: never)"
    )


def _add_log(parser: argparse.ArgumentParser) -> None:
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
    # These are Horovod's older names of the two flags above.
    logging.add_argument(
        "--log-hide-timestamp", action="store_true", dest="log_without_timestamp", help=argparse.SUPPRESS
    )
    logging.add_argument(
        "--no-log-hide-timestamp", action="store_false", dest="log_without_timestamp", help=argparse.SUPPRESS
    )


# Maps an attribute of the parsed arguments to the ranks' variable.
KNOBS = {
    "start_timeout": "ROUNDELAY_START_TIMEOUT",
    "fusion_threshold_mb": "ROUNDELAY_FUSION_THRESHOLD",
    "cycle_time_ms": "ROUNDELAY_CYCLE_TIME",
    "cache_capacity": "ROUNDELAY_CACHE_CAPACITY",
    "tuning": "ROUNDELAY_TUNING",
    "strategy": "ROUNDELAY_STRATEGY",
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


def variables(arguments: argparse.Namespace) -> dict[str, str]:
    """Returns the variables that the given flags set."""
    found = {}
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
        found[variable] = repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
    return found
