"""Frames between the agent and the launcher: each has the MAC of its place in their order."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from roundelay._internal import trust
from roundelay.run.agent.frames import ForgedError, Incoming, Seal, call


def _connected() -> tuple[Seal, Incoming]:
    """An agent's seal, and the launcher's end of its connection."""
    secret = trust.new_secret()
    launcher = Incoming(secret)
    here, there = socket.socketpair()
    with here, there, ThreadPoolExecutor(1) as agent:
        seal = agent.submit(call, there, secret)
        while not launcher.is_proven:
            here.sendall(launcher.add(here.recv(launcher.wanted)))
        return seal.result().to_launcher, launcher


def _frame(seal: Seal, payload: bytes) -> bytes:
    return seal.sealed(b"o", payload)


def test_frames_come_as_they_were_sent() -> None:
    seal, launcher = _connected()
    launcher.add(_frame(seal, b"one") + _frame(seal, b"one"))
    assert list(launcher.frames()) == [(b"o", b"one"), (b"o", b"one")]


def test_a_frame_that_comes_twice_is_refused() -> None:
    seal, launcher = _connected()
    frame = _frame(seal, b"one")
    launcher.add(frame)
    assert list(launcher.frames()) == [(b"o", b"one")]
    launcher.add(frame)
    with pytest.raises(ForgedError):
        list(launcher.frames())


def test_frames_out_of_order_are_refused() -> None:
    seal, launcher = _connected()
    first, second = _frame(seal, b"one"), _frame(seal, b"two")
    launcher.add(second + first)
    with pytest.raises(ForgedError):
        list(launcher.frames())
