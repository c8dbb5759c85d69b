"""csc and topk lose no gradient: on sets of ranks, with several passes, on nodes of different sizes.

Gradients are small whole numbers, so that sums are exact.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import roundelay.torch as hvd
from exact_training import Training, until_buckets
from ranks import Check, needs_ranks, one_and_more, run_check
from some_ranks import process_set_of

THETA = {"ROUNDELAY_THETA": "512"}  # several buckets
SIZES = (70, 300, 5, 128, 64, 33)
TEXTS = (
    "csc:keep=0.25,chunk_elements=8,dense_below=6",
    "csc:keep=0.25,chunk_elements=8,dense_below=6,momentum=none",
    "csc:keep=0.25,chunk_elements=8,dense_below=6,momentum=local",
    "topk:density=0.05,dense_below=6",
    "topk:density=0.05,dense_below=6,momentum=none",
)


@pytest.mark.parametrize("np", [2, 4])
def test_conservation(np: int, check: Check) -> None:
    run_check(check, np, env=THETA)


@pytest.mark.slow
def test_conservation_on_uneven_nodes(check: Check) -> None:
    run_check(check, 4, env=THETA, each=one_and_more(), mpi=False)


def _conserve(trainings: list[Training], steps: int = 12) -> None:
    """Trains them in turn. Some rank keeps gradients back all the time, and all of them come."""
    for training in trainings:
        until_buckets(training)
    for _ in range(steps):
        for training in trainings:
            training.step()
            _check_something_is_kept(training)
    for training in trainings:
        training.check_ranks_agree()
        training.check_all_came()


def _check_something_is_kept(training: Training) -> None:
    keeps = torch.tensor(training.techniques.table.keeps_something())
    assert hvd.allreduce(keeps, op=hvd.Max, process_set=training.ranks).item()


@needs_ranks(4)
def check_all_ranks() -> None:
    for text in TEXTS:
        _conserve([Training(text, SIZES)])


def check_several_passes() -> None:
    for text in TEXTS:
        _conserve([Training(text, SIZES, passes=3)])


def check_no_sync() -> None:
    for text in TEXTS:
        training = until_buckets(Training(text, SIZES))
        for step in range(12):
            training.optimizer.zero_grad()
            with training.optimizer.no_sync():
                for _ in range(step % 3):
                    training.backward()
            training.backward()
            training.optimizer.step()
            _check_something_is_kept(training)
        training.check_ranks_agree()
        training.check_all_came()


def check_windows_that_end_early() -> None:
    """step() completes a window of which some ranks have had fewer passes than others."""
    for text in TEXTS:
        training = until_buckets(Training(text, SIZES, passes=3))
        for step in range(9):
            training.optimizer.zero_grad()
            for _ in range(1 + (step + hvd.rank()) % 3):
                training.backward()
            training.optimizer.step()
        training.check_ranks_agree()
        training.check_all_came()


def check_a_second_backward_before_the_step() -> None:
    for text in TEXTS:
        training = until_buckets(Training(text, SIZES))
        for step in range(9):
            training.optimizer.zero_grad()
            for _ in range(1 + step % 2):
                training.backward()
            training.optimizer.step()
        training.check_ranks_agree()
        training.check_all_came()


def _sets() -> Iterator[list[list[int]]]:
    """Ranks of sets that exist at the same time."""
    yield [[0, 1], [2, 3]]
    yield [[0, 2], [1, 3]]
    yield [[1, 2, 3], [0, 3]]


@needs_ranks(4)
def check_sets_of_ranks() -> None:
    """A rank of two sets trains in both, by turns."""
    for first, second in _sets():
        with process_set_of(first) as one, process_set_of(second) as other:
            for text in TEXTS:
                mine = [each for each in (one, other) if each.included()]
                _conserve([Training(text, SIZES, ranks=each) for each in mine], steps=6)


@needs_ranks(4)
def check_a_set_beside_all_ranks() -> None:
    with process_set_of([0, 1, 3]) as some:
        for text in TEXTS:
            sets = [hvd.global_process_set, *([some] if some.included() else [])]
            _conserve([Training(text, SIZES, ranks=each) for each in sets], steps=6)
