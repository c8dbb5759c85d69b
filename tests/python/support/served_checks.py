"""The program of a rank that stays: runs the checks that standing_ranks.py asks for.

Each request is a line of JSON, and so are the answers: "failed" at once, with a report, then "done". A rank
whose check failed takes part in the barrier after it, so that ranks that passed are not left alone.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import socket
import sys
from typing import Any
from unittest import mock

import rank_checks
from in_time import TooLateError


class Server:
    """One rank. At most one session is open."""

    def __init__(self, tests: socket.socket) -> None:
        self._tests = tests

    def serve(self) -> None:
        """Handles requests until the socket is closed."""
        for line in self._tests.makefile():
            request = json.loads(line)
            faulthandler.dump_traceback_later(request["limit_s"], exit=True)
            try:
                getattr(self, f"_{request['do']}")(request)
            except BaseException as error:
                self._tell_failed(error, request["do"])
            faulthandler.cancel_dump_traceback_later()
            sys.stdout.flush()
            sys.stderr.flush()
            self._tell({"done": True})

    def _begin(self, request: dict[str, Any]) -> None:
        self._environment = mock.patch.dict(os.environ, request["env"])
        self._environment.start()
        self._session = rank_checks.Session()

    def _check(self, request: dict[str, Any]) -> None:
        import roundelay.torch as hvd

        try:
            self._session.run(request["file"], request["name"])
        except BaseException as error:
            self._tell_failed(error, request["name"])
        # Optimizers that wait for the collector would have other names on this rank than on others.
        gc.collect()
        gc.freeze()  # the next collection is short
        hvd.barrier()

    def _end(self, request: dict[str, Any]) -> None:
        self._session.end()
        self._environment.stop()
        del self._session
        gc.unfreeze()
        gc.collect()

    def _tell_failed(self, error: BaseException, name: str) -> None:
        self._tell({"failed": rank_checks.report_of(error, name), "late": isinstance(error, TooLateError)})

    def _tell(self, answer: dict[str, Any]) -> None:
        self._tests.sendall(json.dumps(answer).encode() + b"\n")


def main(address: str) -> None:
    """Runs one rank: connects to `address` and serves."""
    rank_checks.prepare()
    with socket.socket(socket.AF_UNIX) as tests:
        tests.connect(address)
        Server(tests).serve()
    gc.freeze()  # the end of the interpreter would look through torch several times


if __name__ == "__main__":
    main(sys.argv[1])
