"""Prints the version of the Horovod that is installed, or none, and whether it can be imported."""

from __future__ import annotations

import importlib.metadata
import importlib.util

try:
    print(importlib.metadata.version("horovod").partition("+")[0])
except importlib.metadata.PackageNotFoundError:
    print("none")
print(importlib.util.find_spec("horovod") is not None)
