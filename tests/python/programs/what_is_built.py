"""Prints, as JSON, what hvd says of this build."""

from __future__ import annotations

import json

import roundelay.torch as hvd

names = ("mpi_built", "gloo_built", "cuda_built", "nccl_built", "ddl_built", "ccl_built", "rocm_built")
print(json.dumps({name: getattr(hvd, name)() for name in names}))
