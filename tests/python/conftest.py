"""Common to all Python tests: the package of this tree, one thread, and a process that says where it hangs."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parents[1] / "python", HERE.parents[1]):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
