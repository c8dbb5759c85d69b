"""The helper that runs checks on ranks: a check that fails or hangs is reported, with where it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ranks import PATHS, launch, mpirun, run_checks

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")


@pytest.mark.slow
def test_a_failing_check_fails_with_its_output(tmp_path: Path) -> None:
    file = tmp_path / "failing.py"
    file.write_text("def check_sum():\n    assert 1 + 1 == 3, 'wrong on purpose'\n")
    with pytest.raises(AssertionError, match="wrong on purpose"):
        run_checks(str(file), 2, fresh=True)


WHO = """
import os
from pathlib import Path

import roundelay.torch as hvd

def check_who() -> None:
    assert os.environ["ROUNDELAY_CYCLE_TIME"] == "2"
    Path(os.environ["FOLDER"], str(hvd.rank())).write_text(str(os.getpid()))
"""


def processes(file: Path, folder: Path) -> list[str]:
    """Of the ranks that ran the file."""
    folder.mkdir()
    run_checks(str(file), 2, env={"FOLDER": str(folder), "ROUNDELAY_CYCLE_TIME": "2"})
    return [(folder / str(rank)).read_text() for rank in range(2)]


def test_ranks_stay_until_a_check_fails(tmp_path: Path) -> None:
    who, failing = tmp_path / "who.py", tmp_path / "failing.py"
    who.write_text(WHO)
    failing.write_text(
        "import os\n"
        "def check_environment():\n    assert 'FOLDER' not in os.environ\n"
        "def check_sum():\n    assert 1 + 1 == 3, 'wrong on purpose'\n"
    )
    first = processes(who, tmp_path / "first")
    assert len(set(first)) == 2
    assert processes(who, tmp_path / "second") == first
    with pytest.raises(AssertionError) as caught:
        run_checks(str(failing), 2)
    assert "passed check_environment" in str(caught.value)
    assert "failed in check_sum" in str(caught.value)
    assert "check_who" not in str(caught.value)
    assert not set(processes(who, tmp_path / "third")) & set(first)


def test_a_check_that_hangs_is_ended_and_says_where(tmp_path: Path) -> None:
    file = tmp_path / "hanging.py"
    file.write_text(
        "import os, threading\n"
        "from pathlib import Path\n"
        "def never_ends():\n"
        "    Path(os.environ['FOLDER'], str(os.getpid())).touch()\n"
        "    threading.Event().wait()\n"
        "def check_all():\n    never_ends()\n"
    )
    for limit_s in (3.0, 12.0, 48.0):
        folder = tmp_path / str(limit_s)
        folder.mkdir()
        with pytest.raises(AssertionError) as caught:
            run_checks(str(file), 2, limit_s=limit_s, env={"FOLDER": str(folder)})
        if len(list(folder.iterdir())) == 2:  # else a rank was so late that the limit ended its start
            break
    assert "in never_ends" in str(caught.value)


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
if os.environ.get("OMPI_COMM_WORLD_RANK") == "0":
    from mpi4py import MPI  # its own files are larger
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
