"""Starts MPI with a level of threads, and asks Roundelay of it: `mpi_threads.py LEVEL SUPPORTED`."""

from __future__ import annotations

import sys

import mpi4py

import roundelay.torch as hvd

mpi4py.rc.thread_level = sys.argv[1]
from mpi4py import MPI  # noqa: E402 (starts MPI)

hvd.init()
several = MPI.Query_thread() == MPI.THREAD_MULTIPLE
assert [str(hvd.mpi_threads_supported()), str(several)] == [sys.argv[2]] * 2
print("asked", flush=True)
