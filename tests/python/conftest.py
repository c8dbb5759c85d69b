"""Common to all Python tests.

One thread, as ranks share the cores. Tests of one number of ranks come together, as these ranks stay. A test
with the parameter `check` becomes one for each check (named_checks.py); those with the same other parameters
have one init() and shutdown(). Of a test with several sets of other parameters `make test` takes one, if it
starts jobs: all do that are not in `unit`.
Tests in `faults` judge promised seconds, and have three tries for that.
With DRAW_FOR, a commit, some of the other sets have the mark `drawn`.
In CI there is a limit to what may be skipped. Hypothesis measures no times: a busy machine stretches any.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import named_checks
import short_runs
import skips
import standing_ranks
from in_time import three_tries
from named_checks import variant_of
from short_runs import Run

gc.disable()  # until all files are imported: the collector would look through torch again and again

UNIT, FAULTS = (Path(__file__).parent / folder for folder in ("unit", "faults"))

os.environ.setdefault("OMP_NUM_THREADS", "1")
hypothesis.settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    """Before the first test."""
    skips.register(config)


@pytest.hookimpl(trylast=True)  # other parameters come first in a test's name and in the order of tests
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each check is a test."""
    named_checks.parametrize(metafunc)


@pytest.hookimpl(trylast=True)  # after the fixtures' ends
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After the last check of a test with the same other parameters: shuts Roundelay down on the ranks."""
    if nextitem is None or variant_of(nextitem) != variant_of(item):
        standing_ranks.end_session()


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By number of ranks, without checks that need others; else in their own order.

    Variations of a test get the mark `slow`.
    """
    items[:] = sorted(filter(named_checks.fits, items), key=_ranks_of)
    varied = [
        item for item in items if UNIT not in item.path.parents or item.get_closest_marker("starts_jobs")
    ]
    for place in short_runs.variations([_run_of(item) for item in varied]):
        varied[place].add_marker(pytest.mark.slow)
    for item in items:
        if FAULTS in item.path.parents:
            item.add_marker(three_tries)
        if "DRAW_FOR" in os.environ and _is_drawn(item):
            item.add_marker(pytest.mark.drawn)


def pytest_collection_finish() -> None:
    """Collects again, but for what imports have made, which the end of this process looks through, too."""
    gc.freeze()
    gc.enable()


def _ranks_of(item: pytest.Item) -> int:
    parameters = getattr(item, "callspec", None)
    return int(parameters.params.get("np", 0)) if parameters is not None else 0


def _is_drawn(item: pytest.Item) -> bool:
    slow = item.get_closest_marker("slow") and not item.get_closest_marker("nightly")
    return bool(slow) and short_runs.is_drawn(variant_of(item), os.environ["DRAW_FOR"])


def _run_of(item: pytest.Item) -> Run:
    left_out = any(item.get_closest_marker(mark) for mark in ("slow", "nightly"))
    return Run(item.nodeid.partition("[")[0], variant_of(item), _ranks_of(item), left_out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for a file's tests: ranks whose variables name it have these from check to check."""
    return tmp_path_factory.mktemp("folder")


@pytest.fixture
def job_of_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the test in a job of this process alone, also under a launcher."""
    import roundelay.torch as hvd

    monkeypatch.setenv("ROUNDELAY_BOOTSTRAP", "single")
    hvd.init()
    yield
    hvd.shutdown()
