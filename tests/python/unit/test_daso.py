"""DASO on one rank: which skips an epoch has, the strategy's texts, and wrong arguments."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from roundelay.torch.strategies import DASO, parse
from roundelay.torch.strategies._daso.flat_copy import FlatCopy
from roundelay.torch.strategies._daso.skips import BLOCKING, Schedule, Skips


def run(schedule: Schedule, losses: list[float]) -> list[Skips]:
    """Returns the skips of each epoch."""
    found = []
    for loss in losses:
        found.append(schedule.skips)
        schedule.ended(loss)
    return found


def test_the_first_and_the_last_epochs_block() -> None:
    start = Skips(4, 1, 1)
    falling = [0.5**epoch for epoch in range(9)]
    assert run(Schedule(start, 2, 1, 7), falling) == [BLOCKING] * 2 + [start] * 4 + [BLOCKING] * 3


def test_a_plateau_halves_the_skips() -> None:
    schedule = Schedule(Skips(8, 3, 4), 0, 0, 99)
    # The first loss is the best; three are no better by 5 %; then it begins anew.
    found = run(schedule, [1.0] + [0.96] * 12 + [0.1])
    expected = [Skips(8, 3, 4)] * 4 + [Skips(4, 2, 2)] * 3 + [Skips(2, 1, 1)] * 3 + [Skips(1, 1, 1)] * 3
    assert found == [*expected, Skips(8, 2, 2)]  # and at last all skips, with a quarter of them to wait


def test_a_loss_that_falls_keeps_the_skips() -> None:
    start = Skips(8, 8, 1)
    for losses in ([0.94**epoch for epoch in range(20)], [-(1.06**epoch) for epoch in range(20)]):
        assert set(run(Schedule(start, 0, 0, 99), losses)) == {start}


def test_a_loss_that_is_no_number_is_no_better() -> None:
    schedule = Schedule(Skips(4, 4, 1), 0, 0, 99)
    assert run(schedule, [math.nan] * 4)[3] == Skips(2, 2, 1)
    assert schedule.skips == Skips(2, 2, 1)


def test_skips_that_block_keep_blocking() -> None:
    assert Skips(4, 0, 1).halved() == Skips(2, 0, 1)
    assert Skips(4, 0, 1).widened() == Skips(4, 0, 1)


def test_a_schedule_resumes() -> None:
    losses = [1.0, 0.99, 0.98, 0.97, 0.5, 0.5, 0.5, 0.5, 0.4]
    whole, first, again = (Schedule(Skips(8, 2, 2), 1, 1, 20) for _ in range(3))
    expected = run(whole, losses)
    run(first, losses[:5])
    again.load_state_dict(first.state_dict())
    assert run(again, losses[5:]) == expected[5:]


def test_skips_say_which_batches_send_reduce_and_block() -> None:
    skips = Skips(6, 2, 4)
    assert [batch for batch in range(14) if skips.sends(batch)] == [0, 6, 12]
    assert [batch for batch in range(14) if skips.reduces(batch)] == [0, 4, 6, 8, 12]
    assert not any(map(skips.blocks, range(14)))
    assert [batch for batch in range(14) if Skips(6, 0, 1).blocks(batch)] == [0, 6, 12]
    assert all(map(BLOCKING.blocks, range(14)))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("daso:total_epochs=90", "daso:global_skip=4,total_epochs=90"),
        ("daso:global_skip=0,total_epochs=8", "daso:global_skip=0,batches_to_wait=0,total_epochs=8"),
        (
            "daso:batches_per_epoch=7,merge_momentum=1,total_epochs=9,blocking_wire=none,local_skip=2",
            "daso:global_skip=4,local_skip=2,total_epochs=9,batches_per_epoch=7,blocking_wire=none,"
            "merge_momentum=1",
        ),
    ],
)
def test_texts_are_read_and_written_back(text: str, canonical: str) -> None:
    strategy = parse(text)
    assert isinstance(strategy, DASO)
    parts = strategy.text.removeprefix("daso:").split(",")
    assert sorted(parts) == sorted(canonical.removeprefix("daso:").split(","))
    assert parse(strategy.text).text == strategy.text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"global_skip": -1}, "global_skip is -1"),
        ({"batches_to_wait": 5}, "batches_to_wait is 5, but must be at most global_skip, 4"),
        ({"local_skip": 5}, "local_skip is 5, but must be at most global_skip, 4"),
        ({"local_skip": 0}, "local_skip is 0"),
        ({"batches_to_wait": 1.5}, "batches_to_wait is 1.5"),
        ({"warmup_epochs": 3, "cooldown_epochs": 3}, "total_epochs is 5, but .* are 6 in all"),
        ({"total_epochs": 0}, "total_epochs is 0"),
        ({"batches_per_epoch": 0}, "batches_per_epoch is 0"),
        ({"blocking_wire": torch.float64}, "wire is torch.float64"),
        ({"buffers": []}, r"buffers is \[\], but must be a function"),
    ],
)
def test_wrong_arguments(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DASO(**{"total_epochs": 5, "warmup_epochs": 0, "cooldown_epochs": 0, **wrong})


def test_wrong_texts() -> None:
    with pytest.raises(ValueError, match="'daso' needs total_epochs"):
        parse("daso:global_skip=2")
    with pytest.raises(ValueError, match="has no 'period'"):
        parse("daso:total_epochs=2,period=3")


def test_one_rank_counts_epochs_and_does_nothing_else(job_of_one: None) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    strategy = DASO(warmup_epochs=1, cooldown_epochs=0, total_epochs=3)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), strategy=strategy)
    for _ in range(2):
        weight.grad = torch.ones(3)
        optimizer.step()
        strategy.epoch_ended(torch.tensor([0.5]))
    assert strategy.epoch == 2
    assert strategy.skips == Skips(4, 1, 1)
    assert torch.equal(weight.detach(), torch.full((3,), -1.0))
    with pytest.raises(ValueError, match=r"needs the epoch's loss as a number, not \[1\]"):
        strategy.epoch_ended([1])  # type: ignore[arg-type]


def test_tensors_travel_in_one_piece_for_each_type() -> None:
    tensors = [torch.arange(6.0).view(2, 3), torch.ones(2, dtype=torch.float64), torch.full((), 7.0)]
    copy = FlatCopy(tensors)
    copy.load(tensors)
    assert [(piece.dtype, piece.numel()) for piece in copy.pieces] == [(torch.float32, 7), (torch.float64, 2)]
    copy.pieces[0].mul_(2)
    copy.store(tensors)
    assert torch.equal(tensors[0], torch.arange(0.0, 12.0, 2.0).view(2, 3))
    assert float(tensors[2]) == 14.0
    assert copy.fits(tensors)
    assert not copy.fits(tensors[:2])
    assert [one.dtype for one in FlatCopy(tensors, torch.bfloat16).pieces] == [torch.bfloat16]
