"""Builds the package with scikit-build-core, after a look whether all that the build needs is here.

pip calls it (pyproject.toml), and does not look itself without build isolation. So what is missing is one
line with its cure, and no traceback of pip's, CMake's or setuptools'.
"""

import sys

import build_tools

if found := build_tools.missing():
    sys.exit("\n".join(f"roundelay: {line}" for line in found))

from scikit_build_core.setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]
