"""Starts one worker of an elastic job: `python -I -S one_worker.py`, run by the launcher here or over ssh.

It reads from standard input a line with the plan, one with the worker's number, and the function if the
program is one. It answers with one line on
standard output when the worker has started, or says on standard error why it cannot. When the input ends, the
launcher is gone or wants the worker's end, and it ends it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import dataclass

if __name__ == "__main__":  # a plain script; -I keeps its own folder off the path, too
    sys.path.append(os.path.abspath(f"{__file__}/../../../.."))

from roundelay.run.agent import protocol
from roundelay.run.agent.agent import OWN_RANK
from roundelay.run.starter.local_ranks import LocalRanks, on_signals
from roundelay.run.starter.on_host import ANSWER, HostError, HostPlan, end_with_input, prepare, take_function

LOOPBACK = "127.0.0.1"  # what a job of one machine faces


@dataclass(frozen=True)
class OneWorker:
    """The agent that LocalRanks starts. Its program asks the launcher for its rank."""

    first_rank: int  # the worker's number
    address: str  # of this host, for the other workers
    local_size: int = 1

    def environment(self, _local_rank: int) -> dict[str, str]:
        """Returns the variables by which agent and program know their place."""
        return {OWN_RANK: str(self.first_rank), protocol.WORKER: f"{self.first_rank} {self.address}"}


def main() -> int:
    """Follows the plan; returns the worker's exit status."""
    line, number = sys.stdin.buffer.readline(), sys.stdin.buffer.readline()
    if not number:
        return 1  # the launcher is gone already
    plan = HostPlan(**json.loads(line))
    try:
        address, environment = prepare(plan)
    except (HostError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    sys.stdout.buffer.write(ANSWER + b"\n")
    sys.stdout.buffer.flush()
    if plan.function is not None:
        payload = take_function(plan.function)  # it stays open as long as this process lives
        environment[protocol.FUNCTION] = f"/proc/{os.getpid()}/fd/{payload.fileno()}"
    os.dup2(2, 1)  # stdout has carried the answer: agents' lines go to stderr
    orders = os.dup(0)
    os.set_inheritable(orders, False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # the program reads nothing
    threads = max(1, len(os.sched_getaffinity(0)) // plan.ranks)  # the agent knows only its own worker
    environment.setdefault("OMP_NUM_THREADS", str(threads))
    ranks = LocalRanks()
    on_signals(ranks.signal)
    ranks.start(plan.program, OneWorker(int(number), address), environment, None)
    threading.Thread(target=end_with_input, args=(orders, ranks), daemon=True).start()
    return ranks.wait()


if __name__ == "__main__":
    sys.exit(main())
