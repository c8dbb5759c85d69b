"""The helper that runs checks on ranks: a check that fails or hangs is reported, with where it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import standing_ranks
from in_time import TooLateError
from named_checks import PREFIX, names_in
from ranks import PATHS, Check, launch, mpirun, run_check, run_checks

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

CHECKS = """
import os
import threading
from pathlib import Path

import pytest
import roundelay.torch as hvd
import torch

initialised = []

def check_who():
    assert os.environ["ROUNDELAY_CYCLE_TIME"] == "2"
    Path(os.environ["FOLDER"], str(hvd.rank())).write_text(str(os.getpid()))

def check_no_check_was_before():
    initialised.append(1)
    assert initialised == [1]

def check_a_check_was_before():
    assert initialised == [1]

def check_environment():
    assert "FOLDER" not in os.environ

def check_sum():
    assert 1 + 1 == 3, f"wrong on purpose on rank {hvd.rank()}"

def check_sum_on_rank_1():
    assert hvd.rank() == 0, "wrong on purpose"
    hvd.allreduce(torch.ones(1))

def check_death():
    if hvd.rank() == 1:
        os._exit(7)
    hvd.allreduce(torch.ones(1))

def check_time():
    from in_time import TooLateError
    raise TooLateError("late on purpose")

def never_ends():
    Path(os.environ["FOLDER"], str(os.getpid())).touch()
    threading.Event().wait()

def check_hang():
    never_ends()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "checks_of_a_test.py"
    path.write_text(CHECKS)
    return path


def run(file: Path, name: str, env: dict[str, str] | None = None, limit_s: float = 240.0) -> None:
    run_check(Check(str(file), PREFIX + name, name), 2, env=env, limit_s=limit_s)


def processes(file: Path, folder: Path) -> list[str]:
    """Of the ranks that ran the file."""
    folder.mkdir()
    run(file, "who", {"FOLDER": str(folder), "ROUNDELAY_CYCLE_TIME": "2"})
    return [(folder / str(rank)).read_text() for rank in range(2)]


def test_a_files_checks_are_found_in_order(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text(
        "from other import check_b, thing\nfrom x import y as check_c\n"
        "def helper():\n    def check_inner(): pass\ndef check_a():\n    pass\n"
    )
    assert names_in(file) == ["check_b", "check_c", "check_a"]


def test_one_init_and_import_serve_checks_with_one_setting(file: Path) -> None:
    run(file, "no_check_was_before")
    run(file, "a_check_was_before")
    standing_ranks.end_session()
    run(file, "no_check_was_before")
    run(file, "no_check_was_before", {"ROUNDELAY_CYCLE_TIME": "2"})


def test_ranks_stay_after_a_failure_on_all_and_are_initialised_again(file: Path, tmp_path: Path) -> None:
    first = processes(file, tmp_path / "first")
    assert len(set(first)) == 2
    assert processes(file, tmp_path / "second") == first
    run(file, "environment")
    run(file, "no_check_was_before")
    with pytest.raises(AssertionError) as caught:
        run(file, "sum")
    for rank in range(2):
        assert f"rank {rank} failed in check_sum" in str(caught.value)
        assert f"wrong on purpose on rank {rank}" in str(caught.value)
    assert "check_who" not in str(caught.value)
    run(file, "no_check_was_before")
    assert processes(file, tmp_path / "third") == first


@pytest.mark.parametrize(
    ("name", "said"),
    [("sum_on_rank_1", "rank 1 failed in check_sum_on_rank_1"), ("death", "ranks gave no answer")],
)
@pytest.mark.starts_jobs
def test_others_that_wait_are_ended_and_the_next_check_has_new_ranks(
    file: Path, tmp_path: Path, name: str, said: str
) -> None:
    first = processes(file, tmp_path / "first")
    with pytest.raises(AssertionError) as caught:
        run(file, name)
    assert not isinstance(caught.value, TooLateError)
    assert said in str(caught.value)
    assert not set(processes(file, tmp_path / "second")) & set(first)


def test_a_missed_limit_of_time_is_an_error_of_its_own(file: Path) -> None:
    with pytest.raises(TooLateError, match="rank . was too late in check_time"):
        run(file, "time")


def test_a_check_that_hangs_is_ended_and_says_where(file: Path, tmp_path: Path) -> None:
    for limit_s in (3.0, 12.0, 48.0):
        folder = tmp_path / str(limit_s)
        folder.mkdir()
        with pytest.raises(TooLateError) as caught:
            run(file, "hang", {"FOLDER": str(folder)}, limit_s)
        if len(list(folder.iterdir())) == 2:  # else a rank was so late that the limit ended its start
            break
    assert "in never_ends" in str(caught.value)


@pytest.mark.slow
def test_fresh_ranks_serve_one_session(file: Path, tmp_path: Path) -> None:
    seen = []
    for number in range(2):
        env = {"FOLDER": str(tmp_path), "ROUNDELAY_CYCLE_TIME": "2"}
        for _ in range(2):
            run_check(Check(str(file), "check_who", "who"), 2, env=env, fresh=True)
            seen.append((tmp_path / str(number)).read_text())
        standing_ranks.end_session()
    assert seen[0] == seen[1] != seen[2] == seen[3]


@pytest.mark.slow
def test_all_checks_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "failing.py"
    file.write_text("def check_nothing():\n    pass\ndef check_sum():\n    assert 1 + 1 == 3, 'on purpose'\n")
    with pytest.raises(AssertionError, match="failed in check_sum(?s:.)*on purpose"):
        run_checks(str(file), 2, fresh=True)


def test_a_hanging_rank_is_ended_and_says_where(tmp_path: Path) -> None:
    file = tmp_path / "hanging.py"
    file.write_text(
        "import faulthandler, os, threading\n"
        "faulthandler.dump_traceback_later(float(os.environ['RANKS_LIMIT_S']), exit=True)\n"
        "def never_ends():\n    threading.Event().wait()\n"
        "never_ends()\n"
    )
    run = launch([sys.executable, str(file)], 2, limit_s=2.0)
    assert run.returncode != 0
    assert "in never_ends" in run.output


LITTLE_MEMORY_ON_RANK_0 = """
import os, resource
if "OMPI_COMM_WORLD_RANK" in os.environ:
    from mpi4py import MPI  # its own files are larger; returns when all ranks have come
if os.environ.get("OMPI_COMM_WORLD_RANK") == "0":
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
"""


@pytest.mark.slow
def test_ranks_that_fell_back_to_another_fabric_fail(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(LITTLE_MEMORY_ON_RANK_0)
    file = tmp_path / "passing.py"
    file.write_text("def check_nothing():\n    pass\n")
    path = os.pathsep.join(map(str, [tmp_path, *PATHS]))
    with pytest.raises(AssertionError, match="fell back to fabric mpi, the checks are for shm"):
        run_checks(str(file), 2, env={"PYTHONPATH": path}, fresh=True)
