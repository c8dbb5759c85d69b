"""The job's secret, and what it proves. csrc/trust/trust.h describes the protocol; vectors.txt has results.

Uses only the standard library, as the launcher's agents run on hosts that import nothing else of Roundelay.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
import stat
from collections.abc import MutableMapping
from typing import Literal

BYTES = 32  # of a secret, a nonce and a MAC
NO_SECRET = bytes(BYTES)  # the key of a job without one
SECRET, SECRET_FILE = "ROUNDELAY_SECRET", "ROUNDELAY_SECRET_FILE"
_CURE = "it must have 64 hexadecimal digits, as `openssl rand -hex 32` prints them, the same on every rank"

Role = Literal["answer", "call", "welcome"]

_taken: dict[str, str] = {}  # what the environment had


def mac(key: bytes, label: str, *parts: bytes | memoryview) -> bytes:
    """Returns the MAC of the parts; their lengths are part of it."""
    state = hashlib.blake2b(key=key, digest_size=BYTES)
    for part in (label.encode(), *parts):
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()


def proof(key: bytes, role: Role, purpose: str, caller: bytes, answerer: bytes, body: bytes = b"") -> bytes:
    """Returns the proof of one end of a connection. caller, answerer: the nonces of the two ends."""
    return mac(key, role, purpose.encode(), caller, answerer, body)


def is_same(first: bytes, second: bytes) -> bool:
    """Compares in a time that does not depend on the content."""
    return hmac.compare_digest(first, second)


def new_secret() -> bytes:
    """Returns a secret or a nonce."""
    return os.urandom(BYTES)


def hide_secret(environment: MutableMapping[str, str]) -> None:
    """Takes the secret out of the environment: processes that this one starts afterwards do not get it."""
    if SECRET in environment:
        _taken[SECRET] = environment.pop(SECRET)


@functools.cache
def secret() -> bytes:
    """Returns this process's secret; NO_SECRET if its job has none. Raises RuntimeError as load() does."""
    return load(os.environ)


def load(environment: MutableMapping[str, str]) -> bytes:
    """Returns the job's secret, and takes it out of the environment, which has it or the name of its file.

    Raises RuntimeError, one line with the cure, for a secret or a file that is not fit.
    """
    hide_secret(environment)
    if SECRET in _taken:
        return _parsed(_taken[SECRET], SECRET)
    path = environment.get(SECRET_FILE)
    if not path:
        return NO_SECRET
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
                raise RuntimeError(f"{SECRET_FILE}={path}: other users may read or change it: chmod 600 it")
            return _parsed(file.read(2 * BYTES + 2).strip(), f"{SECRET_FILE}={path}")
    except OSError as error:
        raise RuntimeError(f"{SECRET_FILE}={path}: {error.strerror}") from error


def _parsed(text: str, where: str) -> bytes:
    """Returns the secret of 64 digits. The error does not show the text."""
    try:
        found = bytes.fromhex(text) if len(text) == 2 * BYTES else b""
    except ValueError:
        found = b""
    if len(found) != BYTES or found == NO_SECRET:
        raise RuntimeError(f"{where} holds no secret: {_CURE}")
    return found
