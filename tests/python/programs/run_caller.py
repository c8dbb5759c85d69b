"""A caller of roundelay.run() whose function is of __main__: `run_caller.py FOLDER [stubborn]`.

What is stubborn tells of a signal, and goes on.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import roundelay


def work(folder: str, stubborn: str) -> None:
    """Sleeps until it is interrupted."""
    if stubborn:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: Path(folder, "told." + os.environ["RANK"]).touch())
    Path(folder, "ready." + os.environ["RANK"]).write_text(str(os.getpid()))
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        print("tidied up")
        raise


if __name__ == "__main__":
    try:
        roundelay.run(work, sys.argv[1:], np=2, verbose=True)
    except KeyboardInterrupt:
        print("interrupted", roundelay.run(lambda: "and on it goes"))
