"""`roundelay emulate` runs a job on emulated nodes, to see what a slow network does to it."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from roundelay.emulate import job, permission
from roundelay.emulate.link import Link
from roundelay.emulate.network import MOST_NODES, Network, NetworkError
from roundelay.plan import units
from roundelay.run.agent import affinity
from roundelay.run.arguments import parser as run_parser
from roundelay.run.arguments.knobs import number
from roundelay.run.errors import UsageError
from roundelay.run.system import signals, standard_files

_PROG = "roundelay emulate"
_EPILOG = """examples:
  roundelay emulate --nodes 2 --ranks-per-node 2 --rate 100mbit -- python train.py
  roundelay emulate --nodes 2 --rate 1gbit --delay 1ms --timeline-filename job.json -- python train.py"""
# roundelayrun's flags that say what this command decides itself.
_DECIDED = {
    "num_proc": "-np: give --nodes and --ranks-per-node",
    "hosts": "-H: the hosts are the emulated nodes, give --nodes",
    "hostfile": "--hostfile: the hosts are the emulated nodes, give --nodes",
    "ssh_port": "-p: emulated nodes are reached without ssh, leave it out",
    "ssh_identity_file": "-i: emulated nodes are reached without ssh, leave it out",
    "launch_mode": "--gloo, --mpi: ranks on emulated nodes start without MPI, leave them out",
    "mpi_args": "--mpi-args: ranks on emulated nodes start without MPI, leave it out",
    "binding_args": "--binding-args: ranks on emulated nodes start without MPI, leave it out",
}


@dataclass(frozen=True)
class Wish:
    """What the command line asks for."""

    nodes: int
    ranks_per_node: int
    link: Link
    launcher: list[str]  # the words for roundelayrun, the program included


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line `argv` (default: this process's). Returns the job's exit status; 2: wrong use."""
    standard_files.open_all()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        wish = parse(words)
        if os.geteuid() != 0:
            permission.become_root(words)
        # Until the job runs, and has the signals, one ends this process, which takes back what it has made.
        signals.handle(signals.ENDING, _leave)
        with Network(wish.nodes, wish.link) as network:
            _say(_made(wish, network))
            return job.run(network, *_launch(wish, network))
    except UsageError as error:
        _say(f"error: {error}")
        return 2
    except NetworkError as error:
        _say(f"error: no emulated network on this machine: {error}")
        return 1


def parse(words: Sequence[str]) -> Wish:
    """Parses the command line. Raises UsageError."""
    parser = run_parser.make_parser(_PROG)
    parser.usage = f"{_PROG} --nodes N [options] [roundelayrun's options] -- program [arguments]"
    parser.description = "Runs a program as the ranks of a job on nodes that this machine emulates."
    parser.epilog = _EPILOG
    _add_flags(parser)
    given = parser.parse_args(words)
    if given.nodes is None:
        raise UsageError(f"the number of nodes is missing: give --nodes N (see {_PROG} --help)")
    for name, why in _DECIDED.items():
        if getattr(given, name) != parser.get_default(name):
            raise UsageError(why)
    program = given.program[1:] if given.program[:1] == ["--"] else given.program
    if not program:
        raise UsageError(
            f"the program is missing: give one, {_PROG} --nodes {given.nodes} -- python train.py"
        )
    own = run_parser.Parser(prog=_PROG, add_help=False, allow_abbrev=False)
    _add_flags(own)
    before = [word for word in words[: len(words) - len(program)] if word != "--"]
    launcher = [*own.parse_known_args(before)[1], "--", *program]
    link = Link(given.rate, given.delay / 2)  # a packet goes over two: to the switch, and to the other node
    return Wish(given.nodes, given.ranks_per_node, link, launcher)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("emulated network")
    group.add_argument("--nodes", type=_nodes, metavar="N", help=f"nodes to emulate, up to {MOST_NODES}")
    group.add_argument(
        "--ranks-per-node",
        type=number(int, 1, "a number of ranks"),
        default=1,
        metavar="N",
        help="ranks on each node (default 1)",
    )
    group.add_argument(
        "--rate",
        type=_quantity(lambda text: 8 * units.bandwidth(text)),
        metavar="RATE",
        help="what a node can send, and receive, in a second, like 100mbit (default: what this machine can)",
    )
    group.add_argument(
        "--delay",
        type=_quantity(units.seconds),
        default=0.0,
        metavar="TIME",
        help="what a packet takes longer between two nodes, like 5ms (default: none)",
    )


def _nodes(text: str) -> int:
    count: int = number(int, 1, "a number of nodes")(text)
    if count > MOST_NODES:
        raise argparse.ArgumentTypeError(f"{text} nodes are too many, at most {MOST_NODES}")
    return count


def _quantity(read: Callable[[str], float]) -> Callable[[str], float]:
    """Returns an argument's type: a number with its unit."""

    def convert(text: str) -> float:
        try:
            return read(text)
        except units.PlanError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _launch(wish: Wish, network: Network) -> tuple[list[str], dict[str, str]]:
    """Returns the command for the first node, which starts the ranks on all nodes, and its environment."""
    slots = ",".join(f"{network.host(node)}:{wish.ranks_per_node}" for node in range(wish.nodes))
    ranks = ["--gloo", "-np", str(wish.nodes * wish.ranks_per_node), "-H", slots]
    command = [sys.executable, "-m", "roundelay", "run", *ranks, *wish.launcher]
    environment = {**os.environ}
    environment["PATH"] = f"{network.commands}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    if network.cpus(0) is None:  # no node knows that others use the same CPUs
        cpus = len(os.sched_getaffinity(0))
        environment.setdefault("OMP_NUM_THREADS", str(max(1, cpus // (wish.nodes * wish.ranks_per_node))))
    return command, environment


def _made(wish: Wish, network: Network) -> str:
    """Returns the line that says what was made."""
    names = network.host(0) if wish.nodes == 1 else f"{network.host(0)} ... {network.host(wish.nodes - 1)}"
    rate = wish.link.rate
    speed = (
        f"{units.bandwidth_text(rate / 8)} in each direction"
        if rate is not None
        else "as fast as this machine is"
    )
    delay = f", {units.time_text(2 * wish.link.delay)} from node to node" if wish.link.delay else ""
    own = network.cpus(0)
    cpus = (
        f"CPUs {affinity.shown(own)} for {network.host(0)}" if own is not None else "all CPUs for all of them"
    )
    ranks = "1 rank" if wish.ranks_per_node == 1 else f"{wish.ranks_per_node} ranks"
    return f"made {names}, {ranks} each; {speed}{delay}; {cpus}"


def _leave(signum: int, _frame: FrameType | None) -> NoReturn:
    """Ends this process in order. What is made is taken back without being disturbed by more signals."""
    signals.handle(signals.ENDING, signal.SIG_IGN)
    sys.exit(128 + signum)


def _say(line: str) -> None:
    print(f"{_PROG}: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
