"""The strategy CSC with GradScaler on several ranks: another loss scale, overflows, flushes."""

from __future__ import annotations

import warnings

import pytest
import torch

import roundelay.torch as hvd
from csc_training import FINE, SIZES, residuals, until_buckets
from exact_training import Training
from ranks import Check, run_check


@pytest.mark.parametrize("np", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_csc_with_a_scaler(np: int, check: Check) -> None:
    run_check(check, np, env={"ROUNDELAY_THETA": "512"})  # several buckets


def check_the_loss_scale_changes_without_a_trace() -> None:
    """Powers of two: the weights are those without a scaler, whose every change rescales what is kept."""

    def trained(scaler: torch.amp.GradScaler) -> Training:
        training = Training(f"csc:keep=0.25,{FINE}", SIZES, momentum=0.5)
        for _ in range(14):
            training.optimizer.zero_grad()
            training.backward(scaler=scaler)
            scaler.step(training.optimizer)
            scaler.update()
        return training

    plain = trained(torch.amp.GradScaler("cpu", enabled=False))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
    scaled = trained(scaler)
    assert scaler.get_scale() == 4.0 * 2.0**7
    assert all(map(torch.equal, scaled.parameters, plain.parameters))
    factor = scaler.get_scale()
    for ours, theirs in zip(residuals(scaled), residuals(plain), strict=True):
        assert torch.equal(ours, theirs * factor)
    assert any(one.any() for one in residuals(scaled))


def check_an_overflow_is_skipped_by_all() -> None:
    for norms in ("same", "previous"):
        training = until_buckets(Training(f"csc:keep=0.1,{FINE},norms={norms}", SIZES))
        training.techniques.table.rescale(4.0)
        weights = [one.detach().clone() for one in training.parameters]
        training.check_an_overflow_is_skipped()
        assert not any(map(torch.equal, training.parameters, weights))
        assert all(one.isfinite().all() for one in [*training.parameters, *residuals(training)])
        training.check_ranks_agree()


def check_an_overflow_in_a_flush_says_what_is_lost() -> None:
    training = until_buckets(Training(f"csc:keep=0.1,{FINE}", SIZES))
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    training.strategy.flush()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for overflows in (True, True, False):
            training.optimizer.zero_grad()
            training.backward(scaler=scaler, infinity=overflows and hvd.rank() == 1)
            scaler.step(training.optimizer)
            scaler.update()
    said = [str(one.message) for one in caught if "these gradients are lost" in str(one.message)]
    assert len(said) == int(hvd.rank() == 0)
    assert all(one.isfinite().all() for one in [*training.parameters, *residuals(training)])
    training.check_ranks_agree()
