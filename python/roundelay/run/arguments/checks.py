"""Checks before anything starts: the user gets one line with the cause, instead of ranks that fail."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from roundelay import horovod_shim
from roundelay._internal import backend, output_file
from roundelay.run.errors import UsageError
from roundelay.tuning import file as tuning_file


def check_program(program: str) -> None:
    """Raises UsageError if `program` cannot be started here."""
    if shutil.which(program) is not None:
        return
    if Path(program).is_dir():
        raise UsageError(f"the program {program!r} is a folder")
    if Path(program).is_file():
        cure = f"; did you mean 'python {program}'?" if program.endswith(".py") else ""
        raise UsageError(f"the program {program!r} is not executable{cure}")
    where = "no such file" if "/" in program else "not found on PATH"
    raise UsageError(f"the program {program!r} is missing: {where}")


def check_horovod_shim() -> None:
    """Raises UsageError if Roundelay must not take Horovod's place here."""
    try:
        horovod_shim.check()
    except RuntimeError as error:
        raise UsageError(f"--as-horovod: {error}") from error


def check_timeline(path: str, given_by: str) -> None:
    """Raises UsageError if the timeline cannot be written to `path`; leaves what is there as it is."""
    if path in ("", "DYNAMIC"):
        return
    reason = output_file.objection(Path(path))
    if reason is None and not Path(path).is_fifo():  # a reader will open that
        try:
            _write_on_trial(path)
        except OSError as error:
            reason = str(error.strerror).lower()
    if reason is not None:
        raise UsageError(f"cannot write {given_by} {path!r}: {reason}")


def _write_on_trial(path: str) -> None:
    """Writes the first byte of a timeline and removes it again. Raises OSError."""
    is_new = not Path(path).exists()
    try:
        with open(path, "ab", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            file.write(b"[")
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file.truncate(size)
    finally:
        if is_new:
            Path(path).unlink(missing_ok=True)


def check_tuning(path: str) -> None:
    """Raises UsageError if there is a tuning file, and it cannot be used."""
    try:
        if path:
            tuning_file.load(path)
    except tuning_file.TuningFileError as error:
        raise UsageError(str(error)) from error


_PARSE = """
import sys
from roundelay.torch import strategies
try:
    strategies.parse(sys.argv[1])
except ValueError as error:
    sys.exit(str(error))
"""


def check_strategy(text: str, given_by: str, environment: Mapping[str, str]) -> None:
    """Raises UsageError if no strategy has this text. A process of its own loads torch for that."""
    run = subprocess.run(
        [sys.executable, "-c", _PARSE, text], env=environment, capture_output=True, text=True, check=False
    )
    if run.returncode != 0:
        reason = (run.stderr.strip().splitlines() or [f"exit status {run.returncode}"])[-1]
        raise UsageError(f"{given_by} {text!r} is not valid: {reason}")


def pointer_cache_library() -> str:
    """Returns the path of the library for --pointer-cache. Raises UsageError if this build has none."""
    path = backend.pointer_cache_library()
    if path is None:
        raise UsageError("--pointer-cache: this build of Roundelay has no pointer cache: install it again")
    return path


def check_identity(path: str) -> None:
    """Raises UsageError if ssh cannot read its key in `path`."""
    if not os.access(path, os.R_OK):
        raise UsageError(f"cannot read the key -i {path!r}")
