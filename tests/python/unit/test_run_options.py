"""roundelay.run's arguments about the job, as roundelayrun's flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roundelay.run.arguments import parser
from roundelay.run.function.options import ElasticOptions, JobOptions, number_of_ranks, one_of


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
        "elastic": ElasticOptions(),
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


def test_the_options_of_elastic_jobs_are_flags() -> None:
    elastic = ElasticOptions(
        min_np=one_of("min_num_proc", None, "min_np", 2),
        max_np=one_of("max_num_proc", 4, "max_np", 4),
        slots=3,
        reset_limit=0,
        cooldown_range=(5, 9),
        host_discovery_script="cat hosts",
    )
    assert "-H" not in options(elastic=elastic).flags()
    given = parser.parse("roundelayrun", [*options(elastic=elastic).flags(), "python", "worker.py"])
    assert (given.num_proc, given.min_np, given.max_np, given.slots_per_host) == (2, 2, 4, 3)
    assert (given.reset_limit, given.blacklist_cooldown_range) == (0, [5.0, 9.0])
    assert given.host_discovery_script == "cat hosts"
    assert given.program == ["python", "worker.py"]
    assert "-np" not in options(num_proc=1, elastic=elastic).flags()  # the default: --min-np decides
    with pytest.raises(ValueError, match=r"are for elastic jobs: give min_np, too"):
        ElasticOptions(reset_limit=3)
    with pytest.raises(ValueError, match="min_num_proc=1 and min_np=2 are two names"):
        one_of("min_num_proc", 1, "min_np", 2)
