"""This machine's network interfaces and addresses. Uses only the standard library."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct

_SIOCGIFADDR = 0x8915
_LINK_LOCAL = "fe80"


def addresses() -> dict[str, list[str]]:
    """Returns the addresses of each interface, IPv4 first, without link-local ones."""
    found: dict[str, list[str]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        for _, name in socket.if_nameindex():
            found[name] = []
            request = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):  # the interface has no address
                answer = fcntl.ioctl(asker.fileno(), _SIOCGIFADDR, request)
                found[name].append(socket.inet_ntop(socket.AF_INET, answer[20:24]))
    with contextlib.suppress(OSError), open("/proc/net/if_inet6") as listing:  # a system without IPv6
        for line in listing:
            digits, *_, name = line.split()
            if not digits.startswith(_LINK_LOCAL):
                address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
                found.setdefault(name, []).append(address)
    return found


def first_addresses(names: list[str]) -> list[str]:
    """Returns the first address of each named interface. Raises ValueError naming the interfaces here."""
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
    """Returns this machine's addresses towards `host`, IPv4 first; none if not known. Sends nothing."""
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
    """Returns the interface with this address; None for the loopback, and if not known."""
    return next((name for name, own in addresses().items() if address in own and name != "lo"), None)
