"""The models of the measurement: gradients in backward's order, and the seconds that computing takes."""

from __future__ import annotations

import dataclasses

KI = 1 << 10


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """Layers in backward's order; each sleeps for its part of backward, then has its gradient."""

    name: str
    elements: tuple[int, ...]
    forward: float
    backward: tuple[float, ...]


TASKS = {
    task.name: task
    for task in (
        # Layers are equal. On a fast network communication hides under backward.
        Task("even", (128 * KI,) * 8, 0.04, (0.01,) * 8),
        # A task like AlexNet: nearly all weights come first, and computing follows.
        Task("large first", (640 * KI, 256 * KI, *(16 * KI,) * 4), 0.04, (0.005, 0.005, *(0.02,) * 4)),
        # The opposite of that task: nothing hides the last gradients.
        Task("large last", (*(8 * KI,) * 12, 500 * KI), 0.03, (*(0.006,) * 12, 0.01)),
    )
}
THETA = 1 << 20  # bytes of a bucket: several buckets in a step
STEPS = 4  # the steps of a measurement: as many as a cycle of local SGD has
STRATEGIES = (
    "dense",
    "dense:wire=bf16",
    "csc:keep=0.1,chunk_elements=1024",
    "topk:density=0.01",
    f"local_sgd:period={STEPS}",
)
AUTO = "auto"
DENSE = "dense"
THROUGHOUT = {  # what gradients may lose, and the candidates of `auto` then, each taken throughout
    "rounding": (DENSE, "dense:wire=bf16"),
    "lossy": (DENSE, "dense:wire=bf16", "quantised", "csc", "topk"),
}
