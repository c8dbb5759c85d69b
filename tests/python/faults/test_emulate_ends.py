"""`roundelay emulate` takes back all that it has made: nodes, processes and files, whatever ends it."""

from __future__ import annotations

import os
import re
import signal
from functools import partial
from pathlib import Path

import pytest

from emulation import LIMIT_S, Emulation
from in_time import wait_until
from roundelay.emulate import why_not

_REASON = why_not()
pytestmark = pytest.mark.skipif(bool(_REASON), reason=f"no emulated network: {_REASON}")

NODES = ("--nodes", "2", "--rate", "100mbit")
WAITS = "time.sleep(300)"
# Rank 0 leaves processes behind: one that no signal of a launcher reaches, in a session of its own.
LEAVES = """
import subprocess
subprocess.Popen(["sleep", "300"], start_new_session=True, env={}, stdin=subprocess.DEVNULL,
                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""


def stand_in(folder: Path, tool: str, script: str) -> str:
    """Returns a PATH on which a command is another."""
    folder.mkdir()
    (folder / tool).write_text(f"#!/bin/sh\n{script}\n")
    (folder / tool).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def has(folder: Path, pattern: str) -> bool:
    """Tells whether both ranks have written such a file."""
    return len(list(folder.glob(pattern))) == 2


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal(tmp_path: Path, signum: signal.Signals) -> None:
    default = ["env", "--default-signal=INT,HUP"]  # whatever the tests' own shell ignores
    with Emulation(tmp_path / "job", LEAVES + WAITS, *NODES, before=default) as emulation:
        emulation.wait_ready(2)
        emulation.process.send_signal(signum)
        status, _, err = emulation.finish()
    assert status == (-signum if signum == signal.SIGKILL else 128 + signum)
    assert (f"ended by {signum.name}; no rank is left" in err) == (signum != signal.SIGKILL)


def test_a_program_gets_its_signals(tmp_path: Path) -> None:
    body = "signal.signal(signal.SIGUSR1, lambda *_: (here / f'told.{rank}').touch())\n"
    body += "(here / f'listens.{rank}').touch()\nwhile not (here / 'go').exists(): time.sleep(0.02)"
    with Emulation(tmp_path / "job", body, *NODES, "--verbose") as emulation:
        assert emulation.process.stderr is not None
        known = 0
        while known < 2:  # a rank that its launcher has not heard of gets no signal
            known += " is pid " in emulation.process.stderr.readline()
        wait_until(partial(has, emulation.folder, "listens.*"), LIMIT_S, "not all ranks listen")
        emulation.process.send_signal(signal.SIGUSR1)
        wait_until(partial(has, emulation.folder, "told.*"), LIMIT_S, "SIGUSR1 is not forwarded")
        (emulation.folder / "go").touch()
        status, _, err = emulation.finish()
    assert status == 0, err


def test_a_rank_that_fails(tmp_path: Path) -> None:
    body = LEAVES + "\nif rank == 1: sys.exit(7)\n" + WAITS
    with Emulation(tmp_path / "job", body, *NODES) as emulation:
        status, _, err = emulation.finish()
    assert status == 7
    assert "on node1) failed first: exit code 7" in err


def test_a_rank_that_is_killed(tmp_path: Path) -> None:
    body = "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n" + WAITS
    with Emulation(tmp_path / "job", body, *NODES) as emulation:
        status, _, err = emulation.finish()
    assert status == 128 + signal.SIGKILL
    assert "on node1) failed first: killed by SIGKILL (signal 9)" in err


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_in_the_middle_of_the_set_up(tmp_path: Path, signum: signal.Signals) -> None:
    reached = tmp_path / "reached"
    path = stand_in(tmp_path / "bin", "tc", f"touch {reached}; exec sleep 300")
    default = ["env", "--default-signal=INT"]
    with Emulation(tmp_path / "job", WAITS, *NODES, before=default, PATH=path) as emulation:
        wait_until(reached.exists, LIMIT_S, "no link is shaped")
        emulation.process.send_signal(signum)
        status, out, err = emulation.finish()
    assert status == (-signum if signum == signal.SIGKILL else 128 + signum)
    assert (out, err) == ("", "")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo 'Error: Specified qdisc kind is unknown.' >&2; exit 2",
            "this kernel cannot limit a link's rate",
        ),
        ("echo 'Error: a reason of its own.' >&2; exit 2", "tbf .*: Error: a reason of its own"),
    ],
)
def test_a_set_up_that_fails(tmp_path: Path, script: str, said: str) -> None:
    path = stand_in(tmp_path / "bin", "tc", script)
    with Emulation(tmp_path / "job", WAITS, *NODES, PATH=path) as emulation:
        status, out, err = emulation.finish()
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert re.match(f"roundelay emulate: error: no emulated network .*{said}", err), err


def test_a_machine_without_the_tools(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with Emulation(tmp_path / "job", WAITS, *NODES, PATH=str(tmp_path / "empty")) as emulation:
        status, _, err = emulation.finish()
    assert status == 1
    assert (
        "no unshare, nsenter, taskset, mount, ip, tc on PATH: apt-get install iproute2 mount util-linux"
        in err
    )


# --- what a user may ---

AS_A_USER = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
WITHOUT_A_RIGHT = ["setpriv", "--inh-caps=-sys_admin", "--bounding-set=-sys_admin"]


def test_a_user_who_is_not_root(tmp_path: Path) -> None:
    body = "(here / f'uid.{rank}').write_text(str(os.getuid()))"
    with Emulation(tmp_path / "job", body, *NODES, before=AS_A_USER) as emulation:
        status, _, err = emulation.finish()
    assert status == 0, err
    assert "made node0 ... node1, 1 rank each" in err
    assert [file.read_text() for file in emulation.folder.glob("uid.*")] == ["0", "0"]


def test_a_user_who_is_killed(tmp_path: Path) -> None:
    with Emulation(tmp_path / "job", WAITS, *NODES, before=AS_A_USER) as emulation:
        emulation.wait_ready(2)
        emulation.process.kill()
        assert emulation.finish()[0] == -signal.SIGKILL


def test_a_user_who_may_not(tmp_path: Path) -> None:
    path = stand_in(tmp_path / "bin", "unshare", "echo 'unshare: unshare failed: No' >&2; exit 1")
    before = [*AS_A_USER, "env", f"PATH={path}"]
    with Emulation(tmp_path / "job", WAITS, *NODES, before=before) as emulation:
        status, _, err = emulation.finish()
    assert status == 1
    why = "this user may not make namespaces (unshare: unshare failed: No): run it with sudo; in a container"
    assert err.startswith(f"roundelay emulate: error: no emulated network on this machine: {why}")


def test_a_root_who_may_not(tmp_path: Path) -> None:
    with Emulation(tmp_path / "job", WAITS, *NODES, before=WITHOUT_A_RIGHT) as emulation:
        status, _, err = emulation.finish()
    assert status == 1
    why = (
        "unshare: unshare failed: Operation not permitted: run it with sudo; in a container, start that with"
    )
    assert err.startswith(f"roundelay emulate: error: no emulated network on this machine: {why}")
