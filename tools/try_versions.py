"""Builds and tests other versions of Python and PyTorch: `python tools/try_versions.py [PYTHON/TORCH ...]`.

For each version, such as 3.12/2.14.1, it makes a clone of HEAD and an environment under build/versions, as a
newcomer would, and runs TESTS there. It reports versions that this machine cannot have (no such Python, no
such wheel, no space), but they are no failure. It exits with 1 if another version fails to build or to pass.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TORCHES = ("2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
VERSIONS = (*(f"3.11/{torch}" for torch in TORCHES), "3.10/2.13.0", "3.12/2.14.1")
TESTS = (
    "unit/test_torch_single.py",
    "parallel/test_torch_operations.py",
    "parallel/test_torch_optimizer.py",
    "parallel/test_compiled_pieces.py",  # rests on private modules of PyTorch
)
FREE_GB = 15  # PyTorch with CUDA, which most registries serve, takes nearly half of it


class NotHereError(Exception):
    """This machine cannot have the version. The text says why."""


class BrokenError(Exception):
    """The version is here, but Roundelay does not work with it. The text says what failed."""


@dataclass(frozen=True)
class Version:
    """A version of Python and one of PyTorch."""

    python: str
    torch: str

    @classmethod
    def read(cls, text: str) -> Version:
        """Parse the command line's form. Raises ValueError."""
        match = re.fullmatch(r"(3\.\d+)/(\d+\.\d+\.\d+)", text)
        if match is None:
            raise ValueError(f"{text!r} is not like 3.12/2.14.1")
        return cls(*match.groups())

    def __str__(self) -> str:
        return f"Python {self.python}, PyTorch {self.torch}"


def interpreter(python: str) -> str:
    """Find Python, a version like 3.12, on PATH or among pyenv's. Raises NotHereError."""
    name = f"python{python}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [os.environ.get("PATH", ""), *(str(one.parent) for one in pyenv.glob(f"*/bin/{name}"))]
    for place in places:
        found = shutil.which(name, path=place)
        if found is not None and _runs(found):
            return found
    raise NotHereError(f"no {name} here")


def _runs(python: str) -> bool:
    """Return whether the interpreter runs. A shim of pyenv may exist without its version."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def clone(version: Version, folder: Path) -> None:
    """Clone HEAD, and replace the version of PyTorch in it."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(folder)], check=True)
    file = folder / "tools" / "requirements-train.txt"
    text, count = re.subn(r"torch==[\d.]+", f"torch=={version.torch}", file.read_text())
    assert count == 1, file
    file.write_text(text)


def run(folder: Path, log: Path, *words: str) -> bool:
    """Return whether the command ends with 0 in the folder. Appends its output to the log."""
    own = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    with log.open("a") as said:
        return (
            subprocess.run(words, cwd=folder, env=own, stdout=said, stderr=said, check=False).returncode == 0
        )


def attempt(version: Version) -> None:
    """Build and test one version. Raises NotHereError, BrokenError."""
    python = interpreter(version.python)
    folder = ROOT / "build" / "versions" / f"python{version.python}-torch{version.torch}"
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < FREE_GB:
        raise NotHereError(f"{free:.0f} GB of disk are free, PyTorch and the build may take {FREE_GB}")
    clone(version, folder)
    log = folder / "log"
    if not run(folder, log, "make", "build/stamps/train-packages", f"PYTHON={python}"):
        raise NotHereError(f"make found no such environment: see {log.relative_to(ROOT)}")
    for what, words in (
        ("the build", ["make", "build", "build/stamps/test-packages"]),
        ("a test", [".venv/bin/python", "-m", "pytest", "-q", *(f"tests/python/{one}" for one in TESTS)]),
    ):
        if not run(folder, log, *words):
            raise BrokenError(f"{what}: see {log.relative_to(ROOT)}")
    shutil.rmtree(folder / ".venv")  # takes gigabytes


def main(words: Sequence[str]) -> int:
    """Try all versions and print a line for each; return the exit code."""
    failed = False
    for version in map(Version.read, words or VERSIONS):
        begin = time.monotonic()
        try:
            attempt(version)
            outcome = "built and tried"
        except NotHereError as error:
            outcome = f"cannot be had here: {error}"
        except BrokenError as error:
            outcome, failed = f"FAILED: {error}", True
        print(f"{version}: {outcome} ({time.monotonic() - begin:.0f} s)", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
