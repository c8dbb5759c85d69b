"""The tests that gloo passes and roundelay cannot: the line of PyTorch's that makes it so, and the reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Exemption:
    """Why a test tells nothing of a backend. `line`: in torch 2.13.0."""

    line: str
    why: str


EXEMPT = {
    "test_ddp_logging_data_cpu": Exemption(
        "distributed_test.py:6277",
        'compares DDP\'s record of the backend with its name: ProcessGroup.getBackendName() says "custom" of '
        "every backend that is not PyTorch's own",
    ),
}

# What stands between a test and the backend, and is put aside by the harness, as listing.py says.
PUT_ASIDE = {
    "monitored_barrier": Exemption(
        "distributed_c10d.py:5418",
        "dist.monitored_barrier() refuses every name but gloo: tests call the group's own, as it would",
    ),
    "test_get_backend": Exemption(
        "distributed_test.py:776", "compares the group's name with BACKEND: it is told roundelay's"
    ),
}
