"""A rank that prints the ValueError of its init(), in one write."""

from __future__ import annotations

import os

import roundelay.torch as hvd

try:
    hvd.init()
except ValueError as error:
    os.write(1, f"refused: {error}\n".encode())
