"""A job of each way in which roundelayrun starts ranks on one machine. Some files have their own `job`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launch_job import Job
from ranks import mpirun

WITH_MPI = pytest.param(("--mpi",), marks=pytest.mark.skipif(mpirun() is None, reason="no mpirun"), id="mpi")


@pytest.fixture(params=[pytest.param((), id="starter"), WITH_MPI])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path, way=request.param)
    yield job
    job.end()
