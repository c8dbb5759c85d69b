"""What another user of the host can do to a job: finds its ports and sockets, and attacks them.

Run as a program it becomes user UID (argv[1]) and obeys lines of JSON on standard input; it answers each with
a line. Everything it imports is imported before, as that user may read no files of root's.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

UID = 12345
CROWD = 250  # half-open connections to each port and socket
# What strangers say: nothing, noise, another protocol, and lengths of 2^63, of 2^32 and of a frame's limit.
GARBAGE = (
    b"",
    b"\0",
    os.urandom(4096),
    b"GET / HTTP/1.1\r\n\r\n",
    struct.pack("<Q", 1 << 63) + b"x" * 64,
    struct.pack(">Q", 1 << 63) + b"x" * 64,
    struct.pack("<I", 0xFFFFFFFF) + b"x" * 64,
    struct.pack("<I", 64 << 20) + b"x" * 64,
)


def processes(mark: str) -> list[int]:
    """Returns the processes with this text in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def _inodes(pids: Iterable[int]) -> set[str]:
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for fd in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    found |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(fd)))
    return found


def _tables(pids: Iterable[int]) -> Iterator[tuple[list[str], set[str]]]:
    """Yields each process's sockets, and the lines of the tables of its network that may have them."""
    for pid in pids:
        with contextlib.suppress(OSError):
            for table in ("tcp", "tcp6"):
                lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
                yield lines, _inodes([pid])


def tcp_listeners(pids: Iterable[int]) -> list[tuple[str, int]]:
    """Returns address and port of each TCP socket at which these processes listen, on whatever host."""
    found = []
    for lines, inodes in _tables(pids):
        for line in lines:
            words = line.split()
            if words[3] != "0A" or words[9] not in inodes:
                continue
            digits, port = words[1].split(":")
            swapped = b"".join(bytes.fromhex(digits)[i : i + 4][::-1] for i in range(0, len(digits) // 2, 4))
            found.append((str(ipaddress.ip_address(swapped)), int(port, 16)))
    return sorted(set(found))


def unix_listeners(pids: Iterable[int]) -> list[tuple[str, int]]:
    """Returns name and type of each abstract socket at which these processes listen."""
    inodes, found = _inodes(pids), set()
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        words = line.split()
        if len(words) == 8 and words[7].startswith("@roundelay") and words[6] in inodes:
            found.add((words[7][1:], int(words[4], 16)))
    return sorted(found)


class Stranger:
    """The attacker: another user's process; `on_host` are the first words of a command on another host."""

    def __init__(self, on_host: Sequence[str] = ()) -> None:
        words = [*on_host, sys.executable, __file__, str(UID)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == '"ready"\n'

    def ask(self, what: str, **arguments: Any) -> Any:
        """Lets it do something, and returns the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"what": what, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the stranger has ended"
        return json.loads(answer)

    def __enter__(self) -> Stranger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


def _connect(place: list[Any]) -> socket.socket:
    name, number = place
    if isinstance(number, int) and name.startswith("roundelay"):
        made = socket.socket(socket.AF_UNIX, number)
        made.settimeout(5)
        made.connect("\0" + name)
        return made
    return socket.create_connection((name, number), timeout=5)


def _say(place: list[Any], *texts: bytes) -> None:
    """Says all this on one connection; the other end may hang up at any time."""
    with contextlib.suppress(OSError), _connect(place) as made:
        for text in texts:
            made.sendall(text)
        with contextlib.suppress(OSError):
            made.settimeout(0.05)
            made.recv(256)


_held: list[socket.socket] = []


def attack(places: list[list[Any]], crowd: int) -> int:
    """Says all garbage at all places, and leaves a crowd of half-open connections. Returns how many."""
    for place in places:
        for text in GARBAGE:
            _say(place, text)
        for _ in range(crowd):
            try:
                _held.append(_connect(place))
            except OSError:
                break  # there is no more room in the queue
    return len(_held)


def release() -> int:
    """Hangs up all half-open connections. Returns how many."""
    count = len(_held)
    for one in _held:
        one.close()
    _held.clear()
    return count


def write_to_store(port: int, values: dict[str, str]) -> bool:
    """Sets keys of PyTorch's store. Returns whether it took them."""
    import datetime

    from torch import distributed

    store = distributed.TCPStore(  # type: ignore[attr-defined]
        "127.0.0.1", port, is_master=False, timeout=datetime.timedelta(seconds=20)
    )
    for key, value in values.items():
        store.set(key, value)
    return True


def take_a_place(environment: dict[str, str]) -> str:
    """Joins the job as one of its ranks, as far as it gets. Returns its error."""
    import roundelay.torch as hvd

    os.environ.update(environment)
    try:
        hvd.init()
    except (RuntimeError, OSError) as error:
        return str(error)
    return "admitted"


_ORDERS: dict[str, Callable[..., Any]] = {
    "attack": attack,
    "release": release,
    "write": write_to_store,
    "join": take_a_place,
}


def main() -> None:
    """Obeys orders until its input ends."""
    import roundelay.torch as hvd

    assert hvd.is_initialized is not None  # imported while files can be read, as is an encoding
    socket.getaddrinfo("127.0.0.1", 1)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.setgid(int(sys.argv[1]))
    os.setuid(int(sys.argv[1]))
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(_ORDERS[order.pop("what")](**order)), flush=True)


if __name__ == "__main__":
    main()
