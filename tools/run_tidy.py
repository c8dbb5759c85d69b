"""Runs clang-tidy on the torch-free files of csrc, where it is installed: `python tools/run_tidy.py`.

A file that passed is not checked again until it, a header of csrc or .clang-tidy changes.
It counts the files for which --seconds did not suffice; the next run checks them. CI remembers no run, so
there the order decides what is seen: first the files that changed since the last merge, then the others in an
order that differs from commit to commit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "files"  # preset files, because dev compiles several files together
PASSED = ROOT / "build" / "tidy"
TORCH = ("adapter", "bindings", "gradients")  # the analyser takes minutes for torch's headers
SUFFIX = ".cc"  # the analyser does not know CUDA's dialect


def compiled_files() -> list[Path]:
    """Return the files of csrc that the dev build compiles, without those that include torch."""
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    files = {Path(command["file"]) for command in commands}
    csrc = ROOT / "csrc"
    own = [file for file in files if csrc in file.parents and file.suffix == SUFFIX and file.is_file()]
    return sorted(file for file in own if file.relative_to(csrc).parts[0] not in TORCH)


def git(*arguments: str) -> str:
    """Return what git says; nothing without git, or if it does not know the commit (a shallow clone)."""
    try:
        command = ["git", "-c", "core.quotePath=off", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def changed_files() -> set[str]:
    """Return the paths that changed since the last merge, or since the last commit: committed or not."""
    base = git("rev-list", "--merges", "--max-count=1", "HEAD") or git("rev-parse", "--verify", "HEAD~1")
    return set(git("diff", "--name-only", base, "--").splitlines()) if base else set()


def in_order(files: Iterable[str], changed: Iterable[str], commit: str) -> list[str]:
    """Return the files: first those that changed, or whose header did, then the others; each by a hash."""
    stems = {Path(name).with_suffix("") for name in changed}

    def key(name: str) -> tuple[bool, bytes]:
        digest = hashlib.sha256(f"{commit} {name}".encode()).digest()
        return Path(name).with_suffix("") not in stems, digest

    return sorted(files, key=key)


def headers_digest() -> bytes:
    """Return a digest of everything that all files depend on: the headers and the configuration."""
    digest = hashlib.sha256()
    for path in [ROOT / ".clang-tidy", *sorted((ROOT / "csrc").rglob("*.h"))]:
        digest.update(path.read_bytes())
    return digest.digest()


def tidy(program: str, file: Path, common: bytes, deadline: float) -> str | None:
    """Return "" if the file passed, its findings if it did not, None if there was no time left."""
    stamp = PASSED / hashlib.sha256(common + str(file).encode() + file.read_bytes()).hexdigest()
    if stamp.exists():
        return ""
    if time.monotonic() > deadline:
        return None
    command = [program, "--quiet", f"-p={BUILD}", str(file)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        return "\n".join(line for line in result.stdout.splitlines() if "warnings generated" not in line)
    stamp.touch()
    return ""


def main() -> int:
    """Check all files; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    program = shutil.which("clang-tidy") or shutil.which("clang-tidy-14")
    if program is None:
        print("clang-tidy: not installed, skipped (apt-get install clang-tidy)")
        return 0
    PASSED.mkdir(parents=True, exist_ok=True)
    common = headers_digest()
    deadline = time.monotonic() + arguments.seconds
    names = [file.relative_to(ROOT).as_posix() for file in compiled_files()]
    files = [ROOT / name for name in in_order(names, changed_files(), git("rev-parse", "HEAD"))]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(lambda file: tidy(program, file, common, deadline), files))
    for result in results:
        if result:
            print(result)
    left = results.count(None)
    print(
        f"clang-tidy: {len(files) - left} of {len(files)} files" + (f", no time for {left}" if left else "")
    )
    return 1 if any(results) else 0


if __name__ == "__main__":
    sys.exit(main())
