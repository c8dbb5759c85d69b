"""The helper that runs checks on ranks: a check that fails or hangs is reported, with where it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import standing_ranks
from in_time import TooLateError
from named_checks import PREFIX, checks_in
from ranks import PATHS, PROGRAMS, ROOT, Check, launch, mpirun, run_check, run_checks

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

FILE = Path(__file__).with_name("standing_checks.py")


def run(name: str, env: dict[str, str] | None = None, limit_s: float = 240.0) -> None:
    run_check(Check(str(FILE), PREFIX + name, name), 2, env=env, limit_s=limit_s)


def processes(folder: Path) -> list[str]:
    """Of the ranks that ran the file."""
    folder.mkdir()
    run("who", {"FOLDER": str(folder), "ROUNDELAY_CYCLE_TIME": "2"})
    return [(folder / str(rank)).read_text() for rank in range(2)]


def test_a_files_checks_are_found_in_order(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text(
        "from other import check_b, thing\nfrom x import y as check_c\n"
        "def helper():\n    def check_inner(): pass\ndef check_a():\n    pass\n"
    )
    assert [check.name for check in checks_in(file)] == ["check_b", "check_c", "check_a"]


def test_a_check_says_on_how_many_ranks_it_checks_something(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text(
        "from parallel.test_join import check_on_a_process_set\n"
        "@needs_ranks(2, 3)\ndef check_a():\n    pass\ndef check_b():\n    pass\n"
    )
    fitting = [[np for np in range(1, 5) if check.fits(np)] for check in checks_in(file)]
    assert fitting == [[3, 4], [2, 3], [1, 2, 3, 4]]
    with pytest.raises(AssertionError, match="a has nothing to check on 4 ranks"):
        run_check(checks_in(file)[1], 4)


def test_one_init_and_import_serve_checks_with_one_setting() -> None:
    run("no_check_was_before")
    run("a_check_was_before")
    standing_ranks.end_session()
    run("no_check_was_before")
    run("no_check_was_before", {"ROUNDELAY_CYCLE_TIME": "2"})


def test_ranks_stay_after_a_failure_on_all_and_are_initialised_again(tmp_path: Path) -> None:
    first = processes(tmp_path / "first")
    assert len(set(first)) == 2
    assert processes(tmp_path / "second") == first
    run("environment")
    run("no_check_was_before")
    with pytest.raises(AssertionError) as caught:
        run("sum")
    for rank in range(2):
        assert f"rank {rank} failed in check_sum" in str(caught.value)
        assert f"wrong on purpose on rank {rank}" in str(caught.value)
    assert "check_who" not in str(caught.value)
    run("no_check_was_before")
    assert processes(tmp_path / "third") == first


@pytest.mark.parametrize(
    ("name", "said"),
    [("sum_on_rank_1", "rank 1 failed in check_sum_on_rank_1"), ("death", "ranks gave no answer")],
)
@pytest.mark.starts_jobs
def test_others_that_wait_are_ended_and_the_next_check_has_new_ranks(
    tmp_path: Path, name: str, said: str
) -> None:
    first = processes(tmp_path / "first")
    with pytest.raises(AssertionError) as caught:
        run(name)
    assert not isinstance(caught.value, TooLateError)
    assert said in str(caught.value)
    assert not set(processes(tmp_path / "second")) & set(first)


def test_a_missed_limit_of_time_is_an_error_of_its_own() -> None:
    with pytest.raises(TooLateError, match="rank . was too late in check_time"):
        run("time")


def test_a_check_that_hangs_is_ended_and_says_where(tmp_path: Path) -> None:
    for limit_s in (3.0, 12.0, 48.0):
        folder = tmp_path / str(limit_s)
        folder.mkdir()
        with pytest.raises(TooLateError) as caught:
            run("hang", {"FOLDER": str(folder)}, limit_s)
        if len(list(folder.iterdir())) == 2:  # else a rank was so late that the limit ended its start
            break
    assert "in never_ends" in str(caught.value)


@pytest.mark.slow
def test_fresh_ranks_serve_one_session(tmp_path: Path) -> None:
    seen = []
    for number in range(2):
        env = {"FOLDER": str(tmp_path), "ROUNDELAY_CYCLE_TIME": "2"}
        for _ in range(2):
            run_check(Check(str(FILE), "check_who", "who"), 2, env=env, fresh=True)
            seen.append((tmp_path / str(number)).read_text())
        standing_ranks.end_session()
    assert seen[0] == seen[1] != seen[2] == seen[3]


@pytest.mark.slow
def test_all_checks_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "failing.py"
    file.write_text("def check_nothing():\n    pass\ndef check_sum():\n    assert 1 + 1 == 3, 'on purpose'\n")
    with pytest.raises(AssertionError, match="failed in check_sum(?s:.)*on purpose"):
        run_checks(str(file), 2, fresh=True)


@pytest.mark.slow
def test_the_program_runs_all_checks_and_ends_at_the_first_that_fails(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    program = [sys.executable, str(ROOT / "tests" / "python" / "support" / "rank_checks.py"), str(file)]
    file.write_text("def check_one():\n    pass\ndef check_two():\n    pass\n")
    run = launch(program, 2)
    assert run.returncode == 0, run.output
    assert run.output.count("all checks passed on rank ") == 2, run.output
    file.write_text("def check_one():\n    assert not 'on purpose'\ndef check_two():\n    pass\n")
    run = launch(program, 2)
    assert run.returncode != 0
    assert "failed in check_one" in run.output
    assert "passed check_two" not in run.output


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


@pytest.mark.slow
def test_ranks_that_fell_back_to_another_fabric_fail(tmp_path: Path) -> None:
    file = tmp_path / "passing.py"
    file.write_text("def check_nothing():\n    pass\n")
    path = os.pathsep.join(map(str, [PROGRAMS / "little_memory_on_rank_0", *PATHS]))
    with pytest.raises(AssertionError, match="fell back to fabric mpi, the checks are for shm"):
        run_checks(str(file), 2, env={"PYTHONPATH": path}, fresh=True)
