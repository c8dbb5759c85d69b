"""Puts Catch2's header under build/catch2 if Catch2 is not installed: `python tools/get_catch2.py`.

The header is in a wheel that requires one Python version, so pip only downloads the wheel and does not
install it. The version and the hash are fixed; a file with another hash is an error.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "comma-deps-catch2==2.13.10.post96"
SHA256 = "3725c0f0a75f376a5005dde31ead0feb8f7da7507644c201b814443de8355170"
HEADER = "catch2/catch.hpp"
TARGET = Path(__file__).resolve().parent.parent / "build" / "catch2" / HEADER
INSTALLED = [Path(root) / "catch2" for root in ("/usr/include", "/usr/local/include")]


def header_in(wheel: Path) -> bytes:
    """Return the header. Raises ValueError if its hash is wrong."""
    with zipfile.ZipFile(wheel) as archive:
        name = next((entry for entry in archive.namelist() if entry.endswith(HEADER)), None)
        content = b"" if name is None else archive.read(name)
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise ValueError(f"{wheel.name} has a {HEADER} with the SHA-256 {found}, not {SHA256}")
    return content


def main() -> int:
    """Fetch the header unless it is there; return the exit code."""
    if TARGET.exists() or any(folder.is_dir() for folder in INSTALLED):
        return 0
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--python-version", "3.12", "--dest", folder, PACKAGE]
        try:
            subprocess.run(command, check=True)
            (wheel,) = Path(folder).glob("*.whl")
            content = header_in(wheel)
        except (subprocess.CalledProcessError, ValueError) as error:
            print(f"roundelay: Catch2 cannot be fetched: {error}; apt-get install catch2", file=sys.stderr)
            return 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
