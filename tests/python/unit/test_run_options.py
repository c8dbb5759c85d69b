"""roundelay.run's arguments about the job, as roundelayrun's flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roundelay.run.arguments import parser
from roundelay.run.function.options import JobOptions, number_of_ranks


def options(**given: Any) -> JobOptions:
    nothing: dict[str, Any] = {
        "num_proc": 2,
        "hosts": None,
        "hostfile": None,
        "start_timeout": None,
        "output_filename": None,
        "verbose": False,
        "ssh_port": None,
        "ssh_identity_file": None,
        "network_interfaces": None,
        "modes": {"gloo": False, "mpi": False},
        "mpi_args": None,
        "executable": "python",
    }
    return JobOptions(**{**nothing, **given})


def test_what_is_not_given_is_no_flag() -> None:
    assert options().flags() == ["-np", "2", "-H", "localhost:2"]


def test_every_option_is_a_flag_that_the_parser_reads() -> None:
    every = options(
        hostfile=Path("hosts"),
        start_timeout=9,
        output_filename=Path("out"),
        verbose=True,
        ssh_port=22,
        ssh_identity_file="key",
        network_interfaces="eth0,eth1",
        modes={"gloo": False, "mpi": True},
        mpi_args="--mca btl self",
    )
    given = parser.parse("roundelayrun", [*every.flags(), "python", "worker.py"])
    assert (given.num_proc, given.hosts, given.hostfile) == (2, None, "hosts")
    assert (given.start_timeout, given.output_filename, given.verbose) == (9, "out", True)
    assert (given.ssh_port, given.ssh_identity_file) == (22, "key")
    assert given.network_interfaces == ["eth0", "eth1"]
    assert given.launch_mode.flag == "--mpi"
    assert given.mpi_args == ["--mca", "btl", "self"]
    assert given.program == ["python", "worker.py"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"num_proc": 0}, "num_proc=0 is not a number of ranks"),
        ({"num_proc": "2"}, "num_proc='2' is not a number of ranks"),
        ({"hosts": "a:1", "hostfile": "f"}, "hosts or hostfile, not both"),
        ({"modes": {"gloo": True, "mpi": True}}, "use_gloo and use_mpi exclude each other"),
        ({"modes": {"gloo": True}, "mpi_args": "-q"}, "use_gloo and mpi_args exclude each other"),
    ],
)
def test_contradictory_options_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        options(**given)


def test_the_number_of_ranks_has_two_names() -> None:
    assert number_of_ranks(3, None) == number_of_ranks(1, 3) == number_of_ranks(3, 3) == 3
    with pytest.raises(ValueError, match="num_proc=2 and np=3 are two names for one number"):
        number_of_ranks(2, 3)
