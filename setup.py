"""Builds the package: scikit-build-core runs CMake, which finds torch and MPI (cmake/)."""

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

from setuptools import setup

# The extension module holds to the torch it is compiled against, within its minor version.
torch_minor = ".".join(version("torch").split(".")[:2])

# The daily loop (Makefile) installs an editable package whose modules its own CMake run has built already.
build: dict[str, Any] = {} if os.environ.get("ROUNDELAY_MODULES_BUILT") else {"cmake_source_dir": "."}

lines = (Path(__file__).parent / "tools" / "requirements-run.txt").read_text().splitlines()
imported = [line for line in lines if not line.startswith("#")]

setup(install_requires=[f"torch=={torch_minor}.*", *imported], **build)
