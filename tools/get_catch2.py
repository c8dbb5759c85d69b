"""Puts Catch2's single header under build/catch2 where no Catch2 is installed: `python tools/get_catch2.py`.

It comes from a wheel whose metadata ask for one Python version; only the header is used, so pip
downloads and does not install it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "comma-deps-catch2"
HEADER = "catch2/catch.hpp"
TARGET = Path(__file__).resolve().parent.parent / "build" / "catch2" / HEADER
INSTALLED = [Path(root) / "catch2" for root in ("/usr/include", "/usr/local/include")]


def main() -> int:
    """Fetch the header unless there is one; return the exit code."""
    if TARGET.exists() or any(folder.is_dir() for folder in INSTALLED):
        return 0
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--python-version", "3.12", "--dest", folder, PACKAGE]
        wheels = [] if subprocess.call(command) else sorted(Path(folder).glob("*.whl"))
        if not wheels:
            print(
                "roundelay: Catch2 is missing and cannot be fetched: apt-get install catch2", file=sys.stderr
            )
            return 1
        with zipfile.ZipFile(wheels[0]) as wheel:
            name = next(entry for entry in wheel.namelist() if entry.endswith(HEADER))
            TARGET.parent.mkdir(parents=True, exist_ok=True)
            TARGET.write_bytes(wheel.read(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
