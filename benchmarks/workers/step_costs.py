"""One rank of `python -m benchmarks.step_costs`: counters, CPU times and calls of a scenario's steps."""

from __future__ import annotations

import time
from typing import Any

import torch

from benchmarks import measure
from benchmarks.workers.scenarios import SCENARIOS, Calls, Step

_WARMUPS = 40  # steps; a pool is in use and the schedule locked long before


def _counters() -> dict[str, int]:
    import roundelay.torch as hvd

    return dict(hvd.stats())


def _window(step: Step, first: int, steps: int) -> dict[str, Any]:
    """Takes steps. Returns what each counter has grown by, and the CPU times."""
    before, process = _counters(), time.process_time_ns()
    thread = []
    for number in range(first, first + steps):
        begin = time.thread_time_ns()
        step(number)
        thread.append(time.thread_time_ns() - begin)
    process = time.process_time_ns() - process
    now = _counters()
    grown = {name: value - before.get(name, 0) for name, value in now.items()}
    return {
        "counters": {name: value for name, value in grown.items() if value},
        "thread_ns": thread,
        "process_ns": process,
    }


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure some windows of steps, and then count calls in one more."""
    torch.set_num_threads(1)
    if spec["device"] != "cpu":
        import gpu_device

        gpu_device.use()
    import roundelay.torch as hvd

    hvd.init()
    calls, steps = Calls(), spec["steps"]
    step = SCENARIOS[spec["scenario"]](spec["parameters"], calls)
    _window(step, 0, _WARMUPS)
    windows = [_window(step, _WARMUPS + steps * number, steps) for number in range(spec["windows"])]
    calls.counting = True
    _window(step, _WARMUPS + steps * spec["windows"], steps)
    hvd.barrier()
    hvd.shutdown()
    entered = [[phase, name, number] for (phase, name), number in calls.found.most_common()]
    return {"windows": windows, "calls": entered}


if __name__ == "__main__":
    measure.worker(main)
