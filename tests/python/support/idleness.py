"""What a rank costs that has nothing to do."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass

import roundelay.torch as hvd
from meeting import PATIENCE_S, meeting

TRIES = 4


@dataclass(frozen=True)
class Costs:
    """What a process has cost up to a moment."""

    messages: int
    cpu_s: float
    wake_ups: int

    @classmethod
    def now(cls) -> Costs:
        """Returns what this process has cost so far."""
        messages = hvd.stats()["messages_sent"]
        use = resource.getrusage(resource.RUSAGE_SELF)
        return cls(messages, use.ru_utime + use.ru_stime, use.ru_nvcsw)


def expect_idle(seconds: float) -> None:
    """Checks that a rank costs less than 0.1 % of a core, no message, and no more than a few wake-ups.

    All ranks call it. None goes on before all have found themselves idle. A rank that was held up sends its
    last messages late, so one idle period of several is enough.
    """
    with meeting() as ranks:
        time.sleep(0.2)
        seen = []
        for _ in range(TRIES):
            before = Costs.now()
            time.sleep(seconds)
            after = Costs.now()
            spent = after.cpu_s - before.cpu_s
            seen.append((after.messages - before.messages, spent, after.wake_ups - before.wake_ups))
            if seen[-1][0] == 0 and spent < 0.001 * seconds and seen[-1][2] <= 5:
                break
        else:
            raise AssertionError(f"messages, CPU seconds and wake-ups in {seconds} s: {seen}")
        ranks.tell("calm")
        ranks.wait_for("calm", *range(hvd.size()), patience_s=TRIES * seconds + PATIENCE_S)
