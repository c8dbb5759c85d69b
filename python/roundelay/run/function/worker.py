"""Runs one rank of `roundelay.run`: takes the function from standard input, calls it, sends the result back.

Runs as a plain script, `python worker.py VARIABLE`; VARIABLE holds the descriptor that the agent reads.
It imports little before the function arrives: imports would take most of a job's start.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

# A reply has kind and length, then the pickle of the value, or of (text, the exception's pickle or None).
HEADER = struct.Struct(">cQ")
VALUE, FAILURE = b"V", b"F"
_PROTOCOL = 5


def take_call() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Reads the payload on standard input, which is empty from then on."""
    with open(0, "rb", closefd=False) as payload:
        here = pickle.load(payload)
        sys.path[:], sys.argv[:] = here["path"], here["argv"]
        call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] = pickle.load(payload)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return call


def pickled_value(value: object) -> bytes:
    """Returns the pickle. Raises TypeError, naming the value's type, if it cannot be pickled."""
    import cloudpickle

    try:
        pickled: bytes = cloudpickle.dumps(value, _PROTOCOL)
    except Exception as error:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise TypeError(f"the function's result, a {kind}, cannot be pickled: {error}") from None
    return pickled


def pickled_exception(error: BaseException) -> bytes | None:
    """Returns the pickle; None if `error` would not be unpickled with its type."""
    try:
        import cloudpickle

        pickled: bytes = cloudpickle.dumps(error, _PROTOCOL)
        return pickled if type(pickle.loads(pickled)) is type(error) else None
    except Exception:
        return None


def reply(descriptor: int, kind: bytes, body: bytes) -> None:
    """Hands a reply to the agent. Does nothing if the agent is gone."""
    with contextlib.suppress(OSError), os.fdopen(descriptor, "wb") as stream:
        stream.write(HEADER.pack(kind, len(body)))
        stream.write(body)


def own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Returns a traceback without this file's frames, if that leaves any."""
    inner = trace
    while inner is not None and inner.tb_frame.f_code.co_filename == __file__:
        inner = inner.tb_next
    return inner or trace


def tell(error: BaseException) -> None:
    """Tells the agent and the peers of an exception that ends this rank."""
    with contextlib.suppress(ImportError):  # the function's path has not come
        from roundelay._internal import error_report

        error_report.tell(error)
        error_report.tell_peers(error)


def fail(descriptor: int, error: BaseException) -> int:
    """Reports an exception of the function to the agent and on stderr; returns the exit status."""
    tell(error)
    text = "".join(traceback.format_exception(type(error), error, own_frames(error.__traceback__)))
    reply(descriptor, FAILURE, pickle.dumps((text, pickled_exception(error)), _PROTOCOL))
    if isinstance(error, KeyboardInterrupt):  # the user knows
        return 130
    sys.stderr.write(text)
    return 1


def leave(descriptor: int, stop: SystemExit) -> int:
    """Reports sys.exit() in the function as a failure, even with status 0; returns the exit status.

    An elastic job's rank that is not needed any more leaves so, too, and is none.
    """
    from roundelay.run.agent.member import Dismissed

    if isinstance(stop, Dismissed):
        return 0
    text = f"the function called sys.exit({'' if stop.code is None else repr(stop.code)})\n"
    reply(descriptor, FAILURE, pickle.dumps((text, None), _PROTOCOL))
    sys.stderr.write(f"{stop.code}\n" if isinstance(stop.code, str) else text)
    return stop.code if isinstance(stop.code, int) and stop.code != 0 else 1


def main() -> int:
    """Runs the script; returns its exit status."""
    descriptor = int(os.environ.pop(sys.argv[1]))
    os.set_inheritable(descriptor, False)
    try:
        func, args, kwargs = take_call()
        body = pickled_value(func(*args, **kwargs))
    except SystemExit as stop:
        return leave(descriptor, stop)
    except BaseException as error:
        return fail(descriptor, error)
    reply(descriptor, VALUE, body)
    return 0


if __name__ == "__main__":
    sys.exit(main())
