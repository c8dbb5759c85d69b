"""Runs clang-tidy on the torch-free files of csrc, where it is installed: `python tools/run_tidy.py`.

A file that passed is not checked again until it, a header of csrc or .clang-tidy changes.
It counts the files for which --seconds did not suffice; the next run checks them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "files"  # preset files, because dev compiles several files together
PASSED = ROOT / "build" / "tidy"
TORCH = ("adapter", "bindings")  # the analyser takes minutes for torch's headers
SUFFIX = ".cc"  # the analyser does not know CUDA's dialect


def compiled_files() -> list[Path]:
    """Return the files of csrc that the dev build compiles, without those that include torch."""
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    files = {Path(command["file"]) for command in commands}
    csrc = ROOT / "csrc"
    own = [file for file in files if csrc in file.parents and file.suffix == SUFFIX and file.is_file()]
    return sorted(file for file in own if file.relative_to(csrc).parts[0] not in TORCH)


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
    files = compiled_files()
    # Files that changed last come first.
    files.sort(key=lambda file: -file.stat().st_mtime)
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
