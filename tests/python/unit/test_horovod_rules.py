"""What the checks of Horovod's numbers accept."""

from __future__ import annotations

import pytest
import torch

import horovod_rules
import roundelay.torch as hvd
from horovod_rules import FLOATS, expect_reduced, reduced, values

HOW = ((hvd.Sum, 1.0, 1.0), (hvd.Average, 1.0, 1.0), (hvd.Average, 0.3, 1.7), (hvd.Product, 1.7, 0.6))


def _in_a_ring(parts: list[torch.Tensor], op: int, before: float, after: float) -> torch.Tensor:
    """Every step is rounded, from the last part to the first, and an average is that of the parts."""
    share = after / len(parts) if op == hvd.Average else after
    turned = [horovod_rules.times(part, before) for part in reversed(parts)]
    total = turned[0]
    for part in turned[1:]:
        total = total * part if op == hvd.Product else total + part
    return horovod_rules.times(total, share)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("op", "before", "after"), HOW)
def test_nccls_rounding_is_accepted_only_over_nccl(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, op: int, before: float, after: float
) -> None:
    parts = [values(dtype, rank, 500) for rank in range(3)]
    rounded, exact = _in_a_ring(parts, op, before, after), reduced(parts, op, before, after)
    assert not torch.equal(rounded, exact)
    with pytest.raises(AssertionError):
        expect_reduced(rounded, parts, op, before, after, "staged")
    monkeypatch.setattr(horovod_rules, "rounds_each_addition", lambda: True)
    expect_reduced(rounded, parts, op, before, after, "nccl")
    wrong = exact * (1 + 24 * torch.finfo(dtype).eps)
    with pytest.raises(AssertionError, match="must be nearly"):
        expect_reduced(wrong, parts, op, before, after, "nccl")


def test_the_least_is_exact_over_nccl_too(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [values(torch.float64, rank, 50) for rank in range(3)]
    monkeypatch.setattr(horovod_rules, "rounds_each_addition", lambda: True)
    least = reduced(parts, hvd.Min)
    expect_reduced(least, parts, hvd.Min, 1.0, 1.0, "the least")
    with pytest.raises(AssertionError):
        expect_reduced(least * (1 + 2**-52), parts, hvd.Min, 1.0, 1.0, "the least")
