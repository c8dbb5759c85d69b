"""What is looked at before anything starts: one line with the cause, not ranks that fail of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from roundelay import stand_in
from roundelay.run.errors import UsageError


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


def check_stand_in() -> None:
    """Raises UsageError if Roundelay must not take Horovod's place here."""
    try:
        stand_in.check()
    except RuntimeError as error:
        raise UsageError(f"--as-horovod: {error}") from error


def check_timeline(path: str) -> None:
    """Raises UsageError if the timeline cannot be written to `path`."""
    if path == "DYNAMIC":
        return
    folder = Path(path).parent
    if Path(path).is_dir():
        reason = "it is a folder"
    elif not folder.is_dir():
        reason = f"there is no folder {os.fspath(folder)!r}"
    elif not os.access(path if Path(path).exists() else folder, os.W_OK):
        reason = "permission denied"
    else:
        return
    raise UsageError(f"cannot write --timeline-filename {path!r}: {reason}")


def check_identity(path: str) -> None:
    """Raises UsageError if ssh cannot read its key in `path`."""
    if not os.access(path, os.R_OK):
        raise UsageError(f"cannot read the key -i {path!r}")
