"""A process with children of every kind that use Horovod: `horovod_children.py [--itself] ...`.

With --itself it puts Roundelay in Horovod's place; otherwise who starts it has done so.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from multiprocessing.context import BaseContext
from typing import Any

if "--itself" in sys.argv:
    import roundelay.as_horovod  # noqa: F401


def child(queue: Any) -> None:
    """Tells which module Horovod is."""
    import horovod.torch as hvd

    queue.put(hvd.__name__)


if __name__ == "__main__":
    print(sys.argv[1:], sys.path[0].endswith("site"), __spec__ is None)
    for way in ("spawn", "fork"):
        context: BaseContext = multiprocessing.get_context(way)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))  # type: ignore[attr-defined]
        process.start()
        print(way, queue.get(timeout=60))
        process.join()
    line = "import horovod.torch as hvd; print('subprocess', hvd.__name__)"
    print(subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True).stdout)
