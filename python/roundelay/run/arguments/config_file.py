"""Reads `--config-file`, horovodrun's YAML file, and returns the flags that mean the same."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

import yaml

from roundelay.run.errors import UsageError
from roundelay.run.modes import MODES

# Maps section and key to the flag that gets the value, or to the flags for true and for false.
_Flag = str | tuple[str, str]
_LAYOUT: dict[str, dict[str, _Flag]] = {
    "params": {
        "fusion_threshold_mb": "--fusion-threshold-mb",
        "cycle_time_ms": "--cycle-time-ms",
        "cache_capacity": "--cache-capacity",
        "hierarchical_allreduce": ("--hierarchical-allreduce", "--no-hierarchical-allreduce"),
        "hierarchical_allgather": ("--hierarchical-allgather", "--no-hierarchical-allgather"),
        "torus_allreduce": ("--torus-allreduce", "--no-torus-allreduce"),
    },
    "autotune": {
        "enabled": ("--autotune", "--no-autotune"),
        "log_file": "--autotune-log-file",
        "warmup_samples": "--autotune-warmup-samples",
        "steps_per_sample": "--autotune-steps-per-sample",
        "bayes_opt_max_samples": "--autotune-bayes-opt-max-samples",
        "gaussian_process_noise": "--autotune-gaussian-process-noise",
    },
    "timeline": {
        "filename": "--timeline-filename",
        "mark_cycles": ("--timeline-mark-cycles", "--no-timeline-mark-cycles"),
    },
    "stall_check": {
        "enabled": ("--stall-check", "--no-stall-check"),
        "warning_time_seconds": "--stall-check-warning-time-seconds",
        "shutdown_time_seconds": "--stall-check-shutdown-time-seconds",
    },
    "library_options": {
        "mpi_threads_disable": ("--mpi-threads-disable", "--no-mpi-threads-disable"),
        "num_nccl_streams": "--num-nccl-streams",
        "thread_affinity": "--thread-affinity",
        "gloo_timeout_seconds": "--gloo-timeout-seconds",
    },
    "logging": {
        "level": "--log-level",
        "with_timestamp": ("--log-with-timestamp", "--log-without-timestamp"),
    },
}
_CONTROLLERS = {mode.flag.removeprefix("--"): mode.flag for mode in MODES}
_SWITCHES = {"true": 0, "yes": 0, "on": 0, "false": 1, "no": 1, "off": 1}


def words(path: str) -> list[str]:
    """Returns the flags that the file means. Raises UsageError naming the file and, if known, the line."""
    try:
        root = yaml.compose(Path(path).read_text(), Loader=yaml.SafeLoader)
    except OSError as error:
        raise UsageError(f"cannot read --config-file {path!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read --config-file {path!r}: not a text file") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise UsageError(f"{path}:{line}: no YAML: {error.problem}") from error
    return list(_File(path).flags(root)) if root is not None else []


class _File:
    """Walks through a file's nodes."""

    def __init__(self, path: str) -> None:
        self._path = path

    def _wrong(self, node: yaml.Node, what: str) -> UsageError:
        return UsageError(f"{self._path}:{node.start_mark.line + 1}: {what}")

    def flags(self, root: yaml.Node) -> Iterator[str]:
        for key, section in self._entries(root, ["controller", *_LAYOUT], "the file"):
            if key == "controller":
                yield self._controller(section)
            elif not _is_null(section):
                layout = _LAYOUT[key]
                for name, value in self._entries(section, list(layout), f"section {key!r}"):
                    if not _is_null(value):
                        yield from self._flag(name, layout[name], value)

    def _entries(self, node: yaml.Node, known: list[str], where: str) -> Iterator[tuple[str, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            raise self._wrong(node, f"{where} must be a mapping, with keys of {', '.join(known)}")
        seen = set()
        for key, value in node.value:
            name = str(key.value)
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
                raise self._wrong(key, f"unknown key {name!r} in {where}; {hint}")
            if name in seen:
                raise self._wrong(key, f"{name!r} is given twice in {where}")
            seen.add(name)
            yield name, value

    def _controller(self, node: yaml.Node) -> str:
        name = str(node.value).lower()
        if name not in _CONTROLLERS:
            known = " or ".join(sorted(_CONTROLLERS))
            raise self._wrong(node, f"there is no controller {name!r}: want {known}")
        return _CONTROLLERS[name]

    def _flag(self, name: str, flag: _Flag, node: yaml.Node) -> Iterator[str]:
        if not isinstance(node, yaml.ScalarNode):
            raise self._wrong(node, f"{name!r} must be one value")
        if isinstance(flag, str):
            yield f"{flag}={node.value}"
        elif node.value.lower() in _SWITCHES:
            yield flag[_SWITCHES[node.value.lower()]]
        else:
            raise self._wrong(node, f"{name!r} must be true or false, not {node.value!r}")


def _is_null(node: yaml.Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")
