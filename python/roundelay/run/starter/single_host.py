"""Starts the ranks of one machine without MPI: in mpirun's place, `single_host.py N -- program ...`.

Rank 0 inherits a socket that already listens: nobody guesses a port, and only this machine can reach it.
"""

from __future__ import annotations

import contextlib
import os
import sys

if __name__ == "__main__":  # a plain script; -I keeps its own folder off the path, too
    sys.path.append(os.path.abspath(f"{__file__}/../../../.."))

from roundelay.run.starter.local_ranks import HostRanks, LocalRanks, StorePorts, on_signals


def main() -> int:
    """Starts the ranks and waits for all of them; returns the first status that is not 0."""
    size, program = int(sys.argv[1]), sys.argv[3:]
    ranks = LocalRanks()
    on_signals(ranks.signal)
    with contextlib.closing(StorePorts("127.0.0.1")) as ports:
        own = HostRanks(0, size, size, 0, ports.store, ports.master_port)
        ranks.start(program, own, os.environ, ports.listener)
        ports.release()
        return ranks.wait()


if __name__ == "__main__":
    sys.exit(main())
