"""Checks that Horovod has none of these modules: `horovod_modules_that_are_absent.py NAME ...`."""

from __future__ import annotations

import importlib
import sys

import roundelay.as_horovod  # noqa: F401

for name in sys.argv[1:]:
    try:
        importlib.import_module("horovod." + name)
    except ImportError:
        continue
    raise AssertionError(name)
