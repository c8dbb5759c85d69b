"""Common to all Python tests.

One thread, as ranks share the cores; tests of one number of ranks come together, as these ranks stay; of a
test that runs with several numbers, `make test` takes the small ones; in CI there is a limit to what may be
skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import sizes
import skips

os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    """Before the first test."""
    skips.register(config)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By number of ranks; else in their own order."""

    def ranks_of(item: pytest.Item) -> int:
        parameters = getattr(item, "callspec", None)
        return parameters.params.get("np", 0) if parameters is not None else 0

    items.sort(key=ranks_of)
    for number in sizes.larger([(item.nodeid.partition("[")[0], ranks_of(item)) for item in items]):
        items[number].add_marker(pytest.mark.slow)


@pytest.fixture
def job_of_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the test in a job of this process alone, also under a launcher."""
    import roundelay.torch as hvd

    monkeypatch.setenv("ROUNDELAY_BOOTSTRAP", "single")
    hvd.init()
    yield
    hvd.shutdown()
