"""The command line that the checks of the source share: `python tools/check_X.py [ROOT]`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path


def main(name: str, check: Callable[[Path], list[str]]) -> None:
    """Check the tree at ROOT (default: this one), print one line a break, and exit with 1 if there is any."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    breaks = check(root)
    for line in breaks:
        print(f"{name}: {line}", file=sys.stderr)
    sys.exit(1 if breaks else 0)
