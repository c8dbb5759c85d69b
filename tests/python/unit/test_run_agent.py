"""The agent beside a rank, without mpirun: over the TCP that several hosts use, and over a Unix socket."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from in_time import crowd, expect_within, three_tries, wait_until
from launch_job import PROMISED_S, not_ignoring, state_of
from programs import telling
from rank_program import program
from roundelay._internal import error_report, trust
from roundelay.run.agent import affinity, agent, protocol
from roundelay.run.agent.frames import HEADER
from roundelay.run.launcher import connections
from roundelay.run.launcher.connections import Listener, Peer

LIMIT_S = 10.0
PYTHON = Path(agent.__file__).parents[3]


@pytest.fixture(params=["unix", "tcp"])
def listener(request: pytest.FixtureRequest) -> Iterator[Listener]:
    made = Listener(["127.0.0.1"] if request.param == "tcp" else [])
    assert made.address.startswith(request.param)
    yield made
    made.close()


@contextlib.contextmanager
def start(listener: Listener, *program: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """An agent of rank 7, which ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", agent.__file__, "--", *program],
        env={
            **{key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"},
            "OMPI_COMM_WORLD_RANK": "7",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "1000",
            protocol.ADDRESS: listener.address,
            protocol.SECRET: listener.secret.hex(),
            **environment,
        },
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=not_ignoring(signal.SIGINT, signal.SIGHUP),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def frames(peer: Peer) -> Iterator[tuple[bytes, bytes]]:
    """The agent's frames as they come, until its connection ends."""
    while True:
        ready, _, _ = select.select([peer.socket], [], [], LIMIT_S)
        assert ready, "the agent is silent"
        got = peer.receive()
        if got is None:
            return
        yield from got


def caller(listener: Listener) -> Peer:
    """The next caller, whoever it is."""
    peer = listener.accept(listener.sockets[0])
    assert peer is not None
    return peer


def until_exit(peer: Peer) -> dict[bytes, bytes]:
    """What came of each kind, up to the report of the program's end."""
    came: dict[bytes, bytes] = {}
    for kind, payload in frames(peer):
        came[kind] = came.get(kind, b"") + payload
        if kind == protocol.EXIT:
            return came
    pytest.fail(f"no report came, but {came}")


def report(came: dict[bytes, bytes]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(came[protocol.EXIT])
    return found


def test_relays_reports_and_leaves_when_told(listener: Listener) -> None:
    script = "echo out; echo err >&2; echo $OMP_NUM_THREADS; env | grep ROUNDELAY_RUN_A; exit 5"
    with start(listener, "sh", "-c", script) as process:
        peer = caller(listener)
        came = until_exit(peer)
        hello = json.loads(came[protocol.HELLO])
        assert (hello["rank"], hello["host"], hello["threads"]) == (7, socket.gethostname(), 1)
        # The address does not reach the program.
        assert came[protocol.STDOUT] == b"out\n1\n"
        assert came[protocol.STDERR] == b"err\n"
        assert report(came) == {"returncode": 5, "stopped": False, "raised": False}
        assert process.poll() is None
        peer.order(protocol.LEAVE)
        assert process.wait(LIMIT_S) == 0


def test_the_users_number_of_threads_stands(listener: Listener) -> None:
    with start(listener, "sh", "-c", "echo $OMP_NUM_THREADS", OMP_NUM_THREADS="3") as process:
        peer = caller(listener)
        came = until_exit(peer)
        assert came[protocol.STDOUT] == b"3\n"
        assert json.loads(came[protocol.HELLO])["threads"] is None
        peer.order(protocol.LEAVE)
        assert process.wait(LIMIT_S) == 0


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_passes_signals_on(listener: Listener, signum: int) -> None:
    with start(listener, "sh", "-c", "echo ready; exec sleep 60") as process:
        peer = caller(listener)
        assert next(payload for kind, payload in frames(peer) if kind == protocol.STDOUT) == b"ready\n"
        peer.order(protocol.SIGNAL + bytes([signum]))
        assert report(until_exit(peer)) == {"returncode": -signum, "stopped": True, "raised": False}
        peer.order(protocol.LEAVE)
        assert process.wait(LIMIT_S) == 0


@pytest.mark.parametrize(
    "order", [protocol.SIGNAL + bytes([signal.SIGTERM]), protocol.KILL], ids=["end", "kill"]
)
def test_a_program_that_ended_before_the_order_was_not_told(
    listener: Listener, tmp_path: Path, order: bytes
) -> None:
    """The agent comes late to both the end and the order."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with start(listener, "sh", "-c", 'echo $$; read -r _ < "$GATE"; exit 3', GATE=str(gate)) as process:
        peer = caller(listener)
        pid = next(int(payload) for kind, payload in frames(peer) if kind == protocol.STDOUT)
        process.send_signal(signal.SIGSTOP)
        gate.write_text("go on\n")
        wait_until(lambda: state_of(pid) == "Z", LIMIT_S * crowd(), "the program does not end")
        peer.order(order)
        process.send_signal(signal.SIGCONT)
        assert report(until_exit(peer)) == {"returncode": 3, "stopped": False, "raised": False}
        peer.order(protocol.LEAVE)
        assert process.wait(LIMIT_S) == 0


def test_tells_of_the_exception_that_ended_a_program_although_it_was_told_to_end(
    listener: Listener, tmp_path: Path
) -> None:
    words = program(telling.raises_and_does_not_end).words(tmp_path)
    with start(listener, sys.executable, *words, PYTHONPATH=str(PYTHON)) as process:
        peer = caller(listener)
        assert next(payload for kind, payload in frames(peer) if kind == protocol.REPORT) == error_report.OWN
        peer.order(protocol.SIGNAL + bytes([signal.SIGTERM]))
        assert report(until_exit(peer)) == {"returncode": -signal.SIGTERM, "stopped": True, "raised": True}
        peer.order(protocol.LEAVE)
        assert process.wait(LIMIT_S) == 0


@pytest.mark.parametrize("signum", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT])
def test_forwards_signals_that_do_not_end_the_program(listener: Listener, signum: signal.Signals) -> None:
    """Those that the agent gets itself, of mpirun for example, too."""
    script = f"trap 'echo told' {int(signum)}; echo ready; while :; do sleep 0.05; done"
    with start(listener, "sh", "-c", script) as process:
        peer = caller(listener)
        said = (payload for kind, payload in frames(peer) if kind == protocol.STDOUT)
        assert next(said) == b"ready\n"
        peer.order(protocol.FORWARD + bytes([signum]))
        assert next(said) == b"told\n"
        process.send_signal(signum)
        assert next(said) == b"told\n"
        peer.order(protocol.KILL)
        assert report(until_exit(peer))["returncode"] == -signal.SIGKILL
        peer.order(protocol.LEAVE)
        assert process.wait(LIMIT_S) == 0


def test_a_program_that_cannot_start(listener: Listener) -> None:
    with start(listener, "/no/such/program") as process:
        peer = caller(listener)
        came = until_exit(peer)
        assert came[protocol.STDERR] == b"cannot start '/no/such/program': No such file or directory\n"
        assert report(came)["returncode"] == 127
        peer.order(protocol.LEAVE)
        assert process.wait(LIMIT_S) == 0


@three_tries
def test_ends_its_program_when_the_launcher_is_gone(listener: Listener) -> None:
    script = "trap '' TERM; echo $$; while :; do sleep 0.1; done"
    with start(listener, "sh", "-c", script) as process:
        peer = caller(listener)
        pid = next(int(payload) for kind, payload in frames(peer) if kind == protocol.STDOUT)
        started = time.monotonic()
        peer.socket.close()
        assert process.wait(LIMIT_S * crowd()) == 1
        expect_within(PROMISED_S, time.monotonic() - started)
        wait_until(lambda: state_of(pid) == "Z", PROMISED_S, "the program outlives its agent")


def say_as_an_agent(listener: Listener, secret: bytes, *after: bytes) -> tuple[Peer, bytes]:
    """Goes through the handshake with this secret; returns the launcher's end and all that was said."""
    mine = trust.new_secret()
    stranger = agent.dial(listener.address)
    stranger.sendall(mine)
    peer = caller(listener)
    assert peer.receive() == []
    theirs = stranger.recv(2 * trust.BYTES)[: trust.BYTES]
    said = trust.proof(secret, "call", "launcher", mine, theirs) + b"".join(after)
    stranger.sendall(said)
    stranger.shutdown(socket.SHUT_WR)
    return peer, mine + said


def expect_a_stranger(listener: Listener, said: bytes) -> None:
    """Checks that who says this is no agent."""
    with agent.dial(listener.address) as stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        peer = caller(listener)
        assert list(frames(peer)) == []
        assert not peer.is_proven


def sealed(secret: bytes, kind: bytes, payload: bytes) -> bytes:
    """A frame with a MAC that fits no connection."""
    header = HEADER.pack(kind, len(payload))
    return header + payload + trust.mac(secret, "frame", bytes(8), header, payload)


def test_a_caller_without_the_secret_is_refused(listener: Listener) -> None:
    peer, _ = say_as_an_agent(listener, trust.new_secret(), sealed(bytes(32), protocol.EXIT, b"{}"))
    assert list(frames(peer)) == []
    assert not peer.is_proven


def test_a_replayed_answer_of_an_agent_is_refused(listener: Listener) -> None:
    genuine, said = say_as_an_agent(listener, listener.secret)
    assert list(frames(genuine)) == []
    assert genuine.is_proven
    expect_a_stranger(listener, said)


def test_a_frame_that_is_changed_on_its_way_ends_the_connection(listener: Listener) -> None:
    peer, _ = say_as_an_agent(listener, listener.secret, sealed(listener.secret, protocol.STDOUT, b"x"))
    assert list(frames(peer)) == []
    assert peer.is_proven


@pytest.mark.parametrize("said", [b"", b"\0", b"GET / HTTP/1.1\r\n\r\n" * 100, b"\xff" * 4096])
def test_garbage_and_half_words_are_no_agents(listener: Listener, said: bytes) -> None:
    expect_a_stranger(listener, said)


def test_callers_that_say_nothing_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SPARE_STRANGERS", 3)
    crowded = Listener([], agents=2)
    with contextlib.ExitStack() as silent:
        peers = []
        for _ in range(7):
            silent.enter_context(agent.dial(crowded.address))
            peers.append(caller(crowded))
        assert crowded.superfluous() == peers[:2]
        for peer in peers[:2]:
            crowded.drop(peer)
        assert crowded.superfluous() == []
        assert crowded.strangers == 2
        monkeypatch.setattr(connections, "SILENCE_S", 0.0)
        assert crowded.superfluous() == peers[2:]
    crowded.close()


def test_callers_make_room_where_no_more_files_may_be_open() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    crowded = Listener([])
    with contextlib.ExitStack() as silent:
        callers = [silent.enter_context(agent.dial(crowded.address)) for _ in range(5)]
        peers = [caller(crowded) for _ in callers[:4]]
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            assert crowded.accept(crowded.sockets[0]) is None
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert crowded.superfluous() == peers[:2]
        assert caller(crowded) not in peers
    crowded.close()


def test_a_launcher_without_the_secret_is_none(listener: Listener) -> None:
    with start(listener, "true", **{protocol.SECRET: trust.new_secret().hex()}) as process:
        peer = caller(listener)
        assert list(frames(peer)) == []
        assert process.wait(LIMIT_S) == 1
        assert process.stderr is not None
        assert process.stderr.read().endswith(b"the launcher: another program answers in its place\n")


def test_the_program_gets_the_secret_for_import_roundelay_to_take(listener: Listener) -> None:
    program = 'import os, roundelay; os.system("echo [$ROUNDELAY_SECRET]")'
    script = f"echo $ROUNDELAY_SECRET; exec {sys.executable} -c '{program}'"
    with start(listener, "bash", "-c", script, PYTHONPATH=str(PYTHON)):
        peer = caller(listener)
        out = until_exit(peer)[protocol.STDOUT].decode().split()
        assert out == [listener.secret.hex(), "[]"]


def test_says_that_it_cannot_reach_the_launcher(listener: Listener) -> None:
    listener.close()
    with start(listener, "true") as process:
        assert process.wait(LIMIT_S) == 1
        assert process.stderr is not None
        assert process.stderr.read().startswith(b"roundelay agent: rank 7 cannot reach the launcher: ")


def test_without_a_launcher_it_becomes_the_program() -> None:
    bare = {key: value for key, value in os.environ.items() if key != protocol.ADDRESS}
    words = [sys.executable, "-I", "-S", agent.__file__, "--", "sh", "-c", "exit 9"]
    assert subprocess.run(words, env=bare, check=False, timeout=LIMIT_S).returncode == 9


@pytest.mark.parametrize(
    ("said", "cpus"),
    [
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, {2, 3}),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, {0, 1}),
        ({"MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "5"}, None),
        ({"MPI_LOCALRANKID": "0"}, None),
    ],
    ids=["starter", "Open MPI", "more ranks than cores", "not told"],
)
def test_an_agent_binds_to_its_share_of_cores(
    said: dict[str, str], cpus: set[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound: list[set[int]] = []
    monkeypatch.setattr(os, "environ", {protocol.BIND: "1", **said})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, chosen: bound.append(chosen))
    monkeypatch.setattr(affinity, "read_nodes", lambda _: [[frozenset({cpu}) for cpu in range(4)]])
    assert agent.bind() == cpus
    assert bound == ([cpus] if cpus is not None else [])
    monkeypatch.setattr(os, "environ", said)
    assert agent.bind() is None
