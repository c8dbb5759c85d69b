"""A notebook's kernel: runs cells of __main__ without a file, within an event loop.

sys.stdout is an object without a descriptor.
"""

from __future__ import annotations

import asyncio
import code
import io
import sys

CELLS = [
    """
import os
class Point:
    def __init__(self, x):
        self.x = x
shift = 3
def work(point):
    print("rank", os.environ["RANK"])
    return Point(point.x + shift)
""",
    """
import roundelay
points = roundelay.run(work, (Point(4),), np=2)
assert [type(point) for point in points] == [Point, Point]
print([point.x for point in points])
""",
]


async def main() -> None:
    """Runs the cells."""
    kernel = code.InteractiveInterpreter(globals())
    terminal, sys.stdout = sys.stdout, io.StringIO()
    for cell in CELLS:
        kernel.runsource(cell, "<cell>", "exec")
    terminal.write(sys.stdout.getvalue())


if __name__ == "__main__":
    del __file__
    asyncio.run(main())
