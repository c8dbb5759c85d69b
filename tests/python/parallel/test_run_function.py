"""`roundelay.run(func)`: what goes there and what comes back. How it ends badly is in faults/."""

from __future__ import annotations

import functools
import gc
import importlib.util
import inspect
import os
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import roundelay
from ranks import mpirun

STARTERS = [
    {},
    pytest.param({"use_mpi": True}, marks=pytest.mark.skipif(mpirun() is None, reason="no mpirun")),
]


def rank() -> int:
    return int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["RANK"])


class Answer:
    """Of a module that the ranks import by its name."""

    def __init__(self, value: int) -> None:
        self.value = value


def answer(value: int, factor: int = 1) -> Answer:
    return Answer(value * factor)


@pytest.mark.parametrize("how", STARTERS, ids=["gloo", "mpi"])
def test_ranks_reduce_and_results_come_in_their_order(how: dict[str, Any]) -> None:
    def train(scale: float) -> tuple[int, int, list[float]]:
        import torch

        import roundelay.torch as hvd

        hvd.init()
        ones = torch.full((3,), scale * (hvd.rank() + 1))
        return hvd.rank(), hvd.size(), hvd.allreduce(ones, op=hvd.Sum).tolist()

    assert roundelay.run(train, (2.0,), np=2, **how) == [(0, 2, [6.0] * 3), (1, 2, [6.0] * 3)]


def test_functions_of_every_kind() -> None:
    here = threading.get_ident()  # a closure
    assert roundelay.run(lambda: (rank(), here), np=3) == [(0, here), (1, here), (2, here)]
    found = roundelay.run(functools.partial(answer, factor=2), (21,))
    assert [type(value) for value in found] == [Answer]
    assert found[0].value == 42
    assert roundelay.run(answer, args=[3], kwargs={"factor": 5}, num_proc=1)[0].value == 15


def test_a_module_that_no_path_leads_to(tmp_path: Path) -> None:
    file = tmp_path / "some_tests.py"
    file.write_text("class OwnError(Exception): pass\ndef call():\n    raise OwnError(__name__)\n")
    spec = importlib.util.spec_from_file_location("hidden.some_tests", file)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules["hidden.some_tests"] = module
    try:
        spec.loader.exec_module(module)
        with pytest.raises(module.OwnError, match=r"hidden\.some_tests"):
            roundelay.run(module.call)
    finally:
        del sys.modules["hidden.some_tests"]


@pytest.mark.slow
@pytest.mark.parametrize("how", STARTERS, ids=["gloo", "mpi"])
def test_arguments_and_results_of_100_mb(how: dict[str, Any]) -> None:
    big = numpy.arange(100 << 17)

    def check(here: Any) -> Any:
        assert sys.stdin.read() == ""
        assert int(here.sum()) == (100 << 17) * ((100 << 17) - 1) // 2
        return here[::-1].copy() if rank() == 0 else None

    reversed_, nothing = roundelay.run(check, (big,), np=2, **how)
    assert (reversed_ == big[::-1]).all()
    assert nothing is None


def test_output_appears_where_the_caller_has_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def talk() -> None:
        print("grüße", rank())
        print("to stderr", file=sys.stderr)

    roundelay.run(talk, np=2, output_filename=tmp_path / "out", verbose=True)
    out, err = capsys.readouterr()
    assert sorted(out.splitlines()) == ["[rank 0] grüße 0", "[rank 1] grüße 1"]
    assert err.count("to stderr\n") == 2
    assert "roundelay.run: without MPI" in err
    assert (tmp_path / "out" / "rank.1" / "stdout").read_text() == "grüße 1\n"


def test_it_is_a_function_with_horovods_arguments() -> None:
    parameters = inspect.signature(roundelay.run).parameters
    known = (
        "func args kwargs num_proc min_num_proc max_num_proc slots reset_limit cooldown_range hosts hostfile "
    )
    known += (
        "start_timeout ssh_port ssh_identity_file disable_cache output_filename verbose use_gloo use_mpi "
    )
    known += "mpi_args network_interface executable np min_np max_np"
    assert list(parameters)[: len(known.split())] == known.split()
    no_effect: dict[str, Any] = {"ssh_port": 22, "disable_cache": True, "network_interface": "lo"}
    assert roundelay.run(rank, use_gloo=True, executable=sys.executable, start_timeout=60, **no_effect) == [0]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"np": 0}, ValueError, "num_proc=0 is not a number of ranks"),
        ({"num_proc": 3, "np": 2}, ValueError, "num_proc=3 and np=2"),
        ({"hosts": "a:1", "hostfile": "f"}, ValueError, "hosts or hostfile, not both"),
        ({"use_gloo": True, "use_mpi": True}, ValueError, "use_gloo and use_mpi exclude each other"),
        ({"use_gloo": True, "mpi_args": "-q"}, ValueError, "use_gloo and mpi_args exclude each other"),
        ({"np": 3, "hosts": "localhost:2"}, ValueError, "-np 3 wants more ranks than the 2 slots"),
        ({"hostfile": "/nowhere"}, ValueError, "cannot read the hostfile '/nowhere'"),
        ({"hosts": "192.0.2.7:1", "use_mpi": True}, ValueError, "mpirun cannot carry a function to other"),
        ({"ssh_identity_file": "/no/key"}, ValueError, "/no/key"),
        ({"executable": "/no/python"}, ValueError, "the program '/no/python' is missing"),
        ({"np": 2, "min_np": 3}, ValueError, "none may be less than the one before"),
        ({"slots": 1}, ValueError, "are for elastic jobs: give min_np, too"),
        ({"args": (threading.Lock(),)}, TypeError, "^args cannot be sent to the ranks: cannot pickle"),
        (
            {"kwargs": {"a": threading.Lock()}},
            TypeError,
            "^kwargs cannot be sent to the ranks: cannot pickle",
        ),
        ({"func": threading.Lock().acquire}, TypeError, "^the function cannot be sent to the ranks: cannot"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_wrong_use_is_one_line_and_starts_nothing(
    arguments: dict[str, Any], error: type[Exception], text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(error, match=text) as raised:
        roundelay.run(**{"func": print, **arguments})
    assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


def state() -> dict[str, Any]:
    """What a call could leave behind in this process."""
    gc.collect()
    children = Path("/proc/self/task").glob("*/children")
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "children": [pid for listing in children for pid in listing.read_text().split()],
    }


@pytest.mark.slow
def test_many_calls_leave_nothing_behind() -> None:
    size = 8 << 20

    def call() -> None:
        assert [len(data) for data in roundelay.run(lambda data: data, (bytes(size),), np=2)] == [size] * 2

    def fail() -> None:
        with pytest.raises(ZeroDivisionError):
            roundelay.run(lambda: 1 // 0)

    fail()
    call()
    tracemalloc.start()
    before, memory = state(), tracemalloc.get_traced_memory()[0]
    for _ in range(3):
        call()
        fail()
    after, held = state(), tracemalloc.get_traced_memory()[0] - memory
    tracemalloc.stop()
    assert after == before
    assert held < size  # of the 48 MiB of results alone


def test_threads_call_it_at_the_same_time() -> None:
    results: dict[int, list[int]] = {}

    def call(offset: int) -> Callable[[], None]:
        return lambda: results.update({offset: roundelay.run(lambda: offset + rank(), np=2)})

    threads = [threading.Thread(target=call(offset)) for offset in (10, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {10: [10, 11], 20: [20, 21]}
