"""Strangers attack every port and socket of a job, before its ranks have met and while it runs.

The job goes on with right sums each time. SECURITY.md says what holds under which launcher.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import strangers
from in_time import wait_until
from programs import among_strangers
from rank_program import program
from starts import MPIRUN, ROUNDELAYRUN, TORCHRUN, environment, free_port
from strangers import CROWD, Stranger
from tests.rig import Rig, why_not

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="another user's process needs root"),
]
LIMIT_S = 150.0
SECRET = "5e" * 32


class Job:
    """Two ranks, which wait for the test's word."""

    def __init__(self, folder: Path, launcher: list[str], **more: str) -> None:
        self.folder = folder
        self._words = program(among_strangers.comes_and_reduces_when_allowed).words(folder)
        self.mark = f"STRANGERS_MARK={uuid.uuid4().hex}"
        name, _, value = self.mark.partition("=")
        self.process = subprocess.Popen(
            [*launcher, sys.executable, *self._words],
            env=environment(**{name: value, **more}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def allow(self, word: str) -> None:
        (self.folder / word).touch()

    def wait_for(self, *names: str) -> None:
        wait_until(
            lambda: self.process.poll() is not None or all((self.folder / name).exists() for name in names),
            LIMIT_S,
            f"no {names}",
        )
        assert self.process.poll() is None, self.process.communicate()[0]

    def ranks(self) -> list[int]:
        """The ranks' programs, and not the launchers', whose command lines name them, too."""
        words = [word.encode() for word in self._words]
        pids = strangers.processes(self.mark)
        return [pid for pid in pids if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:-1] == words]

    def places(self, with_mpi: bool = False) -> list[tuple[str, int]]:
        """The ports and sockets to attack. An MPI has ports of its own, which are not ours to defend."""
        pids = strangers.processes(self.mark)
        tcp = strangers.tcp_listeners(self.ranks() if with_mpi else pids)
        loopback = [place for place in tcp if place[0] == "127.0.0.1"]
        return [*(loopback if with_mpi else tcp), *strangers.unix_listeners(pids)]

    def store_port(self) -> int:
        """The port at which rank 0 serves before the ranks have met: the only one, under roundelayrun."""
        ports: list[tuple[str, int]] = []

        def found() -> bool:
            ports[:] = strangers.tcp_listeners(strangers.processes(self.mark))
            return bool(ports)

        wait_until(found, LIMIT_S, "no store")
        return ports[0][1]

    def finish(self) -> str:
        out, _ = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == 0, out
        for rank in (0, 1):
            assert f"rank {rank} is right" in out, out
        return out


@contextlib.contextmanager
def job(folder: Path, launcher: list[str], **more: str) -> Iterator[Job]:
    made = Job(folder, launcher, **more)
    try:
        yield made
    finally:
        for pid in strangers.processes(made.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        made.process.kill()
        made.process.wait()


@pytest.fixture(scope="module")
def process() -> Iterator[Stranger]:
    with Stranger() as made:
        yield made


@pytest.fixture
def stranger(process: Stranger) -> Iterator[Stranger]:
    yield process
    process.ask("release")


def ways() -> list[object]:
    """The launchers with what gives their ranks a secret."""
    with_secret = {"ROUNDELAY_SECRET": SECRET}
    torchrun = [*TORCHRUN, "--no-python", "--nproc-per-node", "2", "--master-port"]
    return [
        pytest.param([*ROUNDELAYRUN, "-np", "2"], {}, id="roundelayrun"),
        pytest.param([*ROUNDELAYRUN, "-np", "2", "--mpi"], {}, id="mpi", marks=pytest.mark.nightly),
        pytest.param([*MPIRUN, "-np", "2"], with_secret, id="mpirun", marks=pytest.mark.nightly),
        pytest.param(torchrun, with_secret, id="torchrun", marks=pytest.mark.nightly),
        pytest.param(torchrun, {}, id="torchrun-bare", marks=pytest.mark.nightly),
    ]


@pytest.mark.parametrize(("launcher", "more"), ways())
def test_a_job_outlives_garbage_and_crowds_at_every_port_and_socket(
    tmp_path: Path, stranger: Stranger, launcher: list[str], more: dict[str, str]
) -> None:
    with_mpi = "--mpi" in launcher or "mpirun" in launcher
    if launcher[-1] == "--master-port":
        launcher = [*launcher, free_port()]
    with job(tmp_path, launcher, **more) as attacked:
        attacked.wait_for("here.0", "here.1")
        assert stranger.ask("attack", places=attacked.places(with_mpi), crowd=CROWD) >= 0
        attacked.allow("come")
        attacked.wait_for("met.0", "met.1")
        places = attacked.places(with_mpi)
        assert any(name.startswith("roundelay-") for name, _ in places), places
        assert stranger.ask("attack", places=places, crowd=CROWD) >= 0
        attacked.allow("reduce")
        counts = [int(text) for text in re.findall(r"strangers: (\d+)", attacked.finish())]
        assert sum(counts) > 0  # at the ranks' TCP ports at least


@pytest.mark.skipif(bool(why_not()), reason=f"no rig: {why_not()}")
def test_a_job_outlives_what_another_host_says_to_all_its_ports(tmp_path: Path) -> None:
    """Two hosts have the job; the stranger is on a third one."""
    with Rig(nodes=3, mbit=None) as rig, Stranger(rig.on(2)) as stranger:

        def places() -> list[tuple[str, int]]:
            """The ports that are open to other hosts. A wildcard may be on either host."""
            own = [rig.address(node) for node in range(2)]
            listening = strangers.tcp_listeners(strangers.processes(attacked.mark))
            anywhere = [port for address, port in listening if address in ("::", "0.0.0.0")]
            return [place for place in listening if place[0] in own] + [
                (address, port) for address in own for port in anywhere
            ]

        launcher = [*rig.on(0), *ROUNDELAYRUN, "--gloo", "-np", "2", "-H", "node0:1,node1:1"]
        path = os.pathsep.join([str(rig.commands), environment()["PATH"]])
        with job(tmp_path, launcher, PATH=path) as attacked:
            attacked.wait_for("here.0", "here.1")
            assert len(places()) >= 2  # the launcher and the store
            assert stranger.ask("attack", places=places(), crowd=CROWD) > CROWD
            attacked.allow("come")
            attacked.wait_for("met.0", "met.1")
            assert stranger.ask("attack", places=places(), crowd=CROWD) > CROWD
            attacked.allow("reduce")
            counts = [int(text) for text in re.findall(r"strangers: (\d+)", attacked.finish())]
            assert sum(counts) > 0


def test_another_user_cannot_take_a_ranks_place_nor_spoil_the_store(
    tmp_path: Path, stranger: Stranger
) -> None:
    with job(tmp_path, [*ROUNDELAYRUN, "-np", "2"]) as attacked:
        attacked.wait_for("here.0", "here.1")
        port = attacked.store_port()
        place = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
        place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ROUNDELAY_START_TIMEOUT": "20"}
        said = stranger.ask("join", environment=place)
        assert "rank 0 has the MAC of a secret, and rank 1 has none" in said
        root = "roundelay/env/0/2/1/"
        forged = {f"{root}0/1": "garbage", f"{root}given_up": "all is lost", f"{root}left/1": ""}
        assert stranger.ask("write", port=port, values=forged)
        assert attacked.process.poll() is None
        attacked.allow("come")
        attacked.allow("reduce")
        attacked.finish()


def test_a_thousand_connections_do_not_end_the_launcher(tmp_path: Path, stranger: Stranger) -> None:
    with job(tmp_path, [*ROUNDELAYRUN, "-np", "2"]) as attacked:
        attacked.wait_for("here.0", "here.1")
        launcher = [name for name, _ in attacked.places() if name.startswith("roundelay-run-")]
        assert len(launcher) == 1
        for _ in range(5):  # the stranger may have a thousand files open, too
            stranger.ask("attack", places=[(launcher[0], 1)], crowd=200)
        attacked.allow("come")
        attacked.allow("reduce")
        attacked.finish()


def test_nothing_listens_to_other_machines_and_no_list_of_processes_shows_the_secret(tmp_path: Path) -> None:
    with job(tmp_path, [*ROUNDELAYRUN, "-np", "2"]) as quiet:
        quiet.wait_for("here.0", "here.1")
        pids, secrets = strangers.processes(quiet.mark), set()
        for pid in pids:
            text = Path(f"/proc/{pid}/environ").read_bytes().decode()
            secrets |= set(re.findall(r"ROUNDELAY_(?:RUN_)?SECRET=([0-9a-f]{64})", text))
        assert len(secrets) == 1  # of the launcher's making, for all of the job
        lines = [Path(f"/proc/{pid}/cmdline").read_bytes().decode() for pid in pids]
        assert not any(secret in line for secret in secrets for line in lines)
        quiet.allow("come")
        quiet.wait_for("met.0", "met.1")
        listening = strangers.tcp_listeners(strangers.processes(quiet.mark))
        assert len(listening) >= 3  # the store and both ranks' channels
        assert {address for address, _ in listening} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
        quiet.allow("reduce")
        quiet.finish()
