"""`roundelay emulate`: its arguments, the commands that shape a link, and what forbids namespaces."""

from __future__ import annotations

import subprocess
import sys

import pytest

from roundelay import cli as roundelay_cli
from roundelay.emulate import Link, cli, permission


def kinds(link: Link) -> list[str]:
    return [kind for kind, _ in link.commands("eth0", host=False)]


def words(link: Link, host: bool = False) -> str:
    return "\n".join(" ".join(command) for _, command in link.commands("eth0", host))


@pytest.mark.parametrize(
    ("line", "nodes", "ranks", "passed_on"),
    [
        (
            "--timeline-filename j.json --nodes 3 --strategy bf16 --ranks-per-node 2 -- x --rate 3 -- -v",
            3,
            2,
            "--timeline-filename j.json --strategy bf16 -- x --rate 3 -- -v",
        ),
        ("--nodes 2 python train.py --nodes 5", 2, 1, "-- python train.py --nodes 5"),
    ],
)
def test_what_is_passed_on_to_roundelayrun(line: str, nodes: int, ranks: int, passed_on: str) -> None:
    wish = cli.parse(line.split())
    assert (wish.nodes, wish.ranks_per_node) == (nodes, ranks)
    assert wish.launcher == passed_on.split()


def test_a_packet_goes_over_two_links() -> None:
    assert cli.parse(["--nodes", "2", "--delay", "10ms", "true"]).link == Link(None, 0.005)


@pytest.mark.parametrize(
    ("rate", "bits"), [("100mbit", 1e8), ("1Gbit", 1e9), ("12.5MB/s", 1e8), ("512kbit", 512e3)]
)
def test_rates(rate: str, bits: float) -> None:
    assert cli.parse(["--nodes", "2", "--rate", rate, "true"]).link.rate == bits


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("-- true", "the number of nodes is missing: give --nodes N"),
        ("--nodes 2", "the program is missing: give one, roundelay emulate --nodes 2 -- python train.py"),
        ("--nodes 2 --", "the program is missing"),
        ("--nodes 0 true", "argument --nodes: '0' is not a number of nodes, at least 1"),
        ("--nodes two true", "argument --nodes: 'two' is not a number of nodes, at least 1"),
        ("--nodes 251 true", "argument --nodes: 251 nodes are too many, at most 250"),
        ("--nodes 2 --ranks-per-node 0 true", "argument --ranks-per-node: '0' is not a number of ranks"),
        ("--nodes 2 --rate 100 true", "argument --rate: '100' has no unit of bandwidth: write it like"),
        ("--nodes 2 --rate fast true", "argument --rate: 'fast' is no quantity: write it like"),
        ("--nodes 2 --rate 0mbit true", "argument --rate: '0mbit' must be more than 0"),
        ("--nodes 2 --delay 5 true", "argument --delay: '5' has no unit of time: write s, ms"),
        ("--nodes 2 -np 4 true", "-np: give --nodes and --ranks-per-node"),
        ("--nodes 2 -H a:1,b:1 true", "-H: the hosts are the emulated nodes, give --nodes"),
        ("--nodes 2 --hostfile hosts true", "--hostfile: the hosts are the emulated nodes"),
        ("--nodes 2 -p 2222 true", "-p: emulated nodes are reached without ssh"),
        ("--nodes 2 -i key true", "-i: emulated nodes are reached without ssh"),
        ("--nodes 2 --mpi true", "--gloo, --mpi: ranks on emulated nodes start without MPI"),
        ("--nodes 2 --mpi-args=-v true", "--mpi-args: ranks on emulated nodes start without MPI"),
        (
            "--nodes 2 --start-timeout never true",
            "argument --start-timeout: 'never' is not a number of seconds",
        ),
        ("--nodes 2 --fast -- true", "unrecognized arguments: --fast"),
    ],
)
def test_wrong_arguments(line: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(line.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"roundelay emulate: error: {complaint}")
    assert said.count("\n") == 1


def test_a_link_without_a_rate_is_left_alone() -> None:
    assert kinds(Link()) == []


def test_a_burst_suits_the_rate() -> None:
    assert "rate 100000000bit burst 131072 " in words(Link(1e8))
    assert "rate 1000000bit burst 16384 " in words(Link(1e6))
    assert "gso_max_size 8192" in words(Link(1e6))  # a packet fits into the burst
    assert "burst 1000 " in words(Link(1e6, burst=1000))


def test_a_hosts_own_queue_is_long_enough_for_many_connections() -> None:
    assert f"limit {250_000 + 131_072}" in words(Link(1e8))
    assert f"limit {(4 << 20) + 131_072}" in words(Link(1e8), host=True)
    assert f"limit {25_000_000 + 131_072}" in words(Link(1e10), host=True)


def test_a_delayed_packet_is_then_sent_at_the_rate() -> None:
    assert kinds(Link(1e8, 0.0025)) == ["netem", "", "tbf"]
    lines = words(Link(1e8, 0.0025)).splitlines()
    assert lines[0].startswith("tc qdisc add dev eth0 root handle 1: netem delay 2500us ")
    assert lines[2].startswith("tc qdisc add dev eth0 parent 1:1 tbf rate ")
    assert kinds(Link(delay=0.0025)) == ["netem"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, ": run it with sudo"),
        (
            {"user/max_user_namespaces": "96365", "kernel/unprivileged_userns_clone": "1"},
            ": run it with sudo",
        ),
        (
            {"user/max_user_namespaces": "0"},
            "sudo sysctl user.max_user_namespaces=10000 allows it, or run it with",
        ),
        (
            {"kernel/apparmor_restrict_unprivileged_userns": "1", "user/max_user_namespaces": "96365"},
            "kernel.apparmor_restrict_unprivileged_userns=1 forbids it; sudo sysctl "
            "kernel.apparmor_restrict_unprivileged_userns=0 allows it",
        ),
        (
            {"kernel/unprivileged_userns_clone": "0"},
            "sudo sysctl kernel.unprivileged_userns_clone=1 allows it",
        ),
    ],
)
def test_what_allows_namespaces(settings: dict[str, str], said: str) -> None:
    assert said in permission.how_to_allow(settings)


def test_python_m_roundelay_is_the_command() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "roundelay", "emulate", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert shown.startswith("usage: roundelay emulate --nodes N ")
    assert "--ranks-per-node" in shown
    assert "--timeline-filename" in shown
    assert roundelay_cli.COMMANDS["emulate"].module == "roundelay.emulate.cli"
