"""Ranks without torch that end well or badly, on their own or by signals, and what they start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from rank_here import Rank


def does_nothing(_: Rank) -> None:
    pass


def is_ready(me: Rank) -> None:
    me.ready()


def sleeps(me: Rank) -> None:
    me.ready()
    time.sleep(60)


def says_hello(_: Rank) -> None:
    print("hello", os.environ["OMP_NUM_THREADS"], flush=True)
    print("to stderr", file=sys.stderr)


def writes_3000_lines(me: Rank) -> None:
    for i in range(3000):
        sys.stdout.write(chr(97 + me.number) * 37)
        sys.stdout.write(f" {i}\n")


def writes_without_end(me: Rank) -> None:
    me.ready()
    while True:
        print("y" * 100)


def exits_with_3(me: Rank, who: int) -> None:
    me.meet(3)
    if me.number == who:
        me.stamp()
        sys.exit(3)
    time.sleep(60)


def exits_with_a_message(me: Rank) -> None:
    me.meet(2)
    if me.number == 1:
        sys.exit("no data")
    time.sleep(60)


def exits_with_3_while_others_are_stopped(me: Rank) -> None:
    me.meet(3)
    if me.number == 0:
        me.stamp()
        sys.exit(3)
    os.kill(os.getpid(), signal.SIGSTOP)


def raises(me: Rank) -> None:
    me.meet(2)
    if me.number == 0:
        me.stamp()
        raise ValueError("boom")
    time.sleep(60)


def is_killed_and_others_tell(me: Rank, lost: int, text: str) -> None:
    me.meet(3)
    if me.number == lost:
        me.die()
    me.outlive(lost, text)


def is_killed_and_others_hang(me: Rank) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    me.meet(2)
    if me.number == 1:
        me.die()
    time.sleep(60)


def starts_a_process(me: Rank) -> None:
    subprocess.Popen(["sleep", "60"], start_new_session=True)
    me.meet(2)


def tidies_up(me: Rank, signum: int) -> None:
    """At the signal."""

    def tidy(*_: object) -> None:
        print("tidied up", flush=True)
        sys.exit(0)

    signal.signal(signum, tidy)
    sleeps(me)


def tells_of_signals_and_sleeps(me: Rank) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: me.tell(f"told.{me.number}"))
    sleeps(me)


def tells_of_forwarded_signals(me: Rank) -> None:
    """Until the test says go."""

    def tell(number: int, _: FrameType | None) -> None:
        me.tell(f"told.{me.number}.{number}")

    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT):
        signal.signal(number, tell)
    me.ready()
    me.wait_for("go")


def says_whether_hangups_are_ignored(me: Rank) -> None:
    me.ready()
    me.wait_for("go")
    print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)


# --- on several hosts ---


def says_its_place(_: Rank, folder: str) -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR")
    place = [os.environ[name] for name in names]
    print(*place, os.environ["ROUNDELAY_NODE_ID"][-1], str(Path.cwd()) == folder)


def says_its_place_in_horovods_words(_: Rank) -> None:
    numbers = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    names = (*numbers, "CONTROLLER", "CPU_OPERATIONS")
    print(*(os.environ["HOROVOD_" + name] for name in names))


def tells_a_secret_and_sleeps(me: Rank) -> None:
    me.tell(f"secret.{me.number}", os.environ["MY_SECRET"])
    sleeps(me)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _start_who_ignores_signals() -> None:
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
    subprocess.Popen([sys.executable, "-c", script], start_new_session=True)


def sleeps_stubbornly(me: Rank, forks: bool) -> None:
    _ignore_signals()
    if forks:
        _start_who_ignores_signals()
    sleeps(me)


def is_killed_and_others_are_stubborn(me: Rank) -> None:
    _ignore_signals()
    _start_who_ignores_signals()
    me.meet(3)
    if me.number == 2:
        me.die()
    time.sleep(60)


# --- under mpirun ---


MAY_LOSE_PEERS = "OMPI_MCA_mpi_ft_enable"


def says_that_it_may_lose_peers(_: Rank) -> None:
    print(os.environ[MAY_LOSE_PEERS])


def ends_as_who_has_lost_a_peer(me: Rank) -> None:
    """As an MPI ends rank 0, when the test says that rank 1 is lost."""
    me.ready()
    if me.number == 0:
        me.wait_for("lost")
        print("an MPI's own words", file=sys.stderr)
        sys.exit(14)
    time.sleep(90)
