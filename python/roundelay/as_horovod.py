"""Makes ``import horovod`` mean Roundelay, in this process and the ones it starts.

In a program, before anything imports Horovod::

    import roundelay.as_horovod

or without touching the program: ``python -m roundelay.as_horovod train.py --epochs 3`` (``-m module`` and
``-c code`` work, too) or ``roundelayrun --as-horovod -np 4 python train.py``. For all programs of this
Python environment, with a command ``horovodrun``: ``python -m roundelay.as_horovod --install``, until
``--uninstall``. RuntimeError where a real Horovod is installed: see ``roundelay.horovod_shim``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

from roundelay import horovod_shim

PROG = "python -m roundelay.as_horovod"


def main(words: Sequence[str]) -> NoReturn:
    """Replaces this process by ``python words...`` with the shim on its path; exits with 2 if it cannot."""
    if not words or words[0] in ("-h", "--help"):
        usage = f"usage: {PROG} (train.py | -m module | -c code) [arguments], or --install, or --uninstall"
        print(usage, file=sys.stderr)
        sys.exit(0 if words else 2)
    if words[0] in ("--install", "--uninstall"):
        sys.exit(_change_environment(words[0]))
    try:
        horovod_shim.check()
    except RuntimeError as error:
        sys.exit(_refusal(str(error)))
    if sys.flags.ignore_environment:
        sys.exit(_refusal("-I and -E hide PYTHONPATH, by which the program finds the Horovod shim"))
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    environment = {**os.environ, "PYTHONPATH": horovod_shim.python_path(os.environ)}
    os.execve(sys.executable, [sys.executable, *flags, *words], environment)


def _change_environment(how: str) -> int:
    """Puts Roundelay into this Python environment as Horovod, or takes it out again; returns the status."""
    from roundelay.horovod_shim import environment

    try:
        files = environment.add() if how == "--install" else environment.remove()
    except (RuntimeError, OSError) as error:
        return _refusal(str(error))
    for file in files:
        print("wrote" if how == "--install" else "removed", file)
    return 0 if files else _refusal("there is nothing to remove")


def _refusal(reason: str) -> int:
    print(f"{PROG}: error: {reason}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main(sys.argv[1:])
horovod_shim.install()
