"""This machine's network interfaces and addresses. Uses only the standard library."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct

_SIOCGIFADDR = 0x8915
_LINK_LOCAL = "fe80"


def addresses() -> dict[str, list[str]]:
    """The addresses of each interface, IPv4 first; those of a link only are left out."""
    found: dict[str, list[str]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        for _, name in socket.if_nameindex():
            found[name] = []
            request = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):  # it has none
                answer = fcntl.ioctl(asker.fileno(), _SIOCGIFADDR, request)
                found[name].append(socket.inet_ntop(socket.AF_INET, answer[20:24]))
    with contextlib.suppress(OSError), open("/proc/net/if_inet6") as listing:  # a system without IPv6
        for line in listing:
            digits, *_, name = line.split()
            if not digits.startswith(_LINK_LOCAL):
                address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
                found.setdefault(name, []).append(address)
    return found


def of(names: list[str]) -> list[str]:
    """The first address of each of the named interfaces. Raises ValueError, naming what there is."""
    there = addresses()
    chosen = []
    for name in names:
        if name not in there:
            raise ValueError(f"there is no network interface {name!r} here, but {', '.join(there)}")
        if not there[name]:
            raise ValueError(f"the network interface {name!r} has no address")
        chosen.append(there[name][0])
    return chosen


def facing(host: str) -> list[str]:
    """The addresses that this machine sends from to `host`, IPv4 first. Nothing is sent. Empty: not known."""
    try:
        found = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return []
    own: dict[str, None] = {}
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as probe, contextlib.suppress(OSError):
            probe.connect(address)
            own[str(probe.getsockname()[0])] = None
    return sorted(own, key=lambda address: ":" in address)


def name_of(address: str) -> str | None:
    """The interface that has this address; None: the loopback, or not known."""
    return next((name for name, own in addresses().items() if address in own and name != "lo"), None)
