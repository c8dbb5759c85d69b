"""DASO beside the rest: joins, GradScaler, clipping, other optimizers, mistakes, late transfers."""

from __future__ import annotations

import tempfile
import time
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from daso_training import Training, close, daso, layouts, nodes_of
from ranks import Check, needs_ranks, run_check
from roundelay.errors import MismatchError
from roundelay.torch.strategies._daso.transfer import Transfer
from sequential_daso import Epoch, Program
from sequential_local_sgd import loss_of

warnings.filterwarnings("ignore", "strategy daso.*all ranks are on one node", RuntimeWarning)

_SLOW, _NIGHTLY = pytest.mark.slow, pytest.mark.nightly
_RANKS = (4, pytest.param(2, marks=_SLOW), pytest.param(6, marks=_NIGHTLY))


@pytest.mark.parametrize("np", _RANKS)
def test_daso_beside_the_rest(np: int, check: Check) -> None:
    run_check(check, np)


def check_uneven_data_ends_the_cycle() -> None:
    for each in layouts():
        for skips in ((4, 3), (2, 2), (0, 0)):
            with nodes_of(each):
                training = Training(daso(*skips))
                with hvd.join_context(training.optimizer):
                    training.run(5 + 2 * hvd.rank())
                assert training.equal_everywhere()
                last = 3 + 2 * hvd.size()
                assert training.strategy.state_dict()["step"] == last
                training.steps = last
                training.strategy.epoch_ended(1.0)
                assert training.run(7, ends=True).equal_everywhere()


def check_one_node_reduces_gradients_and_says_so() -> None:
    with nodes_of(hvd.size()), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        training = Training(daso(4)).run(5, ends=True)
        dense = Training("dense").run(5)
        assert all(map(torch.equal, training.parameters, dense.parameters))
        texts = [str(one.message) for one in said if "all ranks are on one node" in str(one.message)]
        assert len(texts) == (hvd.rank() == 0)


def check_passes_no_sync_and_clipping() -> None:
    """Gradients are summed over the passes; clipping is each node's own."""
    with nodes_of(1):
        training = Training(daso(2, 1), backward_passes_per_step=2)
        program = Program([[rank] for rank in range(hvd.size())], passes=2, clipped=0.01)
        for step in range(6):
            training.optimizer.zero_grad()
            loss_of(training.model, hvd.rank(), 2 * step).backward()
            with training.optimizer.no_sync():
                loss_of(training.model, hvd.rank(), 2 * step + 1).backward()
            nn.utils.clip_grad_norm_(training.model.parameters(), 0.01)
            training.optimizer.step()
        for batch in range(6):
            program.batch(Epoch(2, 1, 1, 6), batch)
        close(training.parameters, program.parameters(hvd.rank()))


def check_an_overflow_on_one_rank_skips_the_step_on_all() -> None:
    with nodes_of(max(1, hvd.size() // 2)):
        training = Training(daso(3, 2, 2))
        scaler = torch.amp.GradScaler(torch.get_default_device().type, init_scale=4.0)
        for step in range(6):
            training.optimizer.zero_grad()
            loss = loss_of(training.model, hvd.rank(), step)
            infinite = step == 1 and hvd.rank() == hvd.size() - 1
            scaler.scale(loss * (float("inf") if infinite else 1.0)).backward()
            scaler.step(training.optimizer)
            scaler.update()
            assert training.strategy.state_dict()["step"] == step + (step < 1)
        assert scaler.get_scale() == 2.0
        training.strategy.average()
        assert training.equal_everywhere()
        assert all(one.isfinite().all() for one in training.parameters)


def check_ranks_that_differ_get_one_error() -> None:
    last = hvd.rank() == hvd.size() - 1
    for each in layouts():
        with nodes_of(each) as nodes:
            with pytest.raises(MismatchError, match=r"rank 0 has .*global_skip=4.* rank .*global_skip=2"):
                Training(daso(2 if last else 4))
            training = Training(daso(2, 1)).run(2)
            behind = hvd.rank() in nodes[-1]  # its ranks have a batch less in the epoch
            with pytest.raises(MismatchError, match="after different steps: rank .* after step"):
                training.run(0 if behind else 1, ends=True)


def check_a_merge_that_comes_late_is_counted() -> None:
    """The last rank sends only when the first one has looked for the transfer, and found none."""
    with nodes_of(1), tempfile.TemporaryDirectory() as own:
        looked = Path(hvd.broadcast_object(own)) / "looked"
        training = Training(daso(2, 1))
        before, is_done = hvd.stats(), Transfer.is_done

        def looking(transfer: Transfer) -> bool:
            found = is_done(transfer)
            if hvd.rank() == 0:
                looked.touch()
            return found

        if hvd.rank() == hvd.size() - 1:
            while not looked.exists():
                time.sleep(0.001)
            training.run(2)
        else:
            with patch.object(Transfer, "is_done", looking):
                training.run(2)
            late, slept = (hvd.stats()[key] - before[key] for key in ("late_merges", "late_merges_ns"))
            assert hvd.rank() > 0 or (late == 1 and slept > 0)
        assert "sent to other nodes" in hvd.report()
        training.run(1)
        exchange: Any = training.strategy._exchange
        while not exchange._pending.transfer.is_done():
            time.sleep(0.001)
        late = hvd.stats()["late_merges"]
        training.run(1)
        assert hvd.stats()["late_merges"] == late
        hvd.barrier()


@needs_ranks(4, 4)
def check_gradients_in_the_node_keep_their_schedule() -> None:
    with nodes_of(2):
        training = Training(daso(4, 2)).run(60)
        before = hvd.stats()["locked_operations"]
        training.run(60)
        assert hvd.stats()["locked_operations"] - before >= 60  # of two operations in each step, and more


def check_epochs_must_be_announced() -> None:
    with nodes_of(max(1, hvd.size() // 2)):
        training = Training(daso(2, batches_per_epoch=3)).run(3)
        assert training.equal_everywhere()
        with pytest.raises(RuntimeError, match=r"epoch 0 has ended after 3 batches: .*epoch_ended\(loss\)"):
            training.run(1)
        with pytest.raises(ValueError, match=r"not averaged the last 2 steps: call .*average\(\)"):
            hvd.DistributedOptimizer(Training(daso(2)).run(2).optimizer, strategy="dense")
        last = hvd.rank() == hvd.size() - 1
        with pytest.raises((ValueError, hvd.HorovodInternalError), match="needs the epoch's loss as a"):
            training.strategy.epoch_ended("low" if last else 1.0)  # type: ignore[arg-type]
        training.strategy.epoch_ended(torch.tensor(1.0))
        assert training.run(3, ends=True).equal_everywhere()


def check_two_optimizers_have_cycles_of_their_own() -> None:
    with nodes_of(max(1, hvd.size() // 2)):
        first, second = Training(daso(2, 2)), Training(daso(3, 1))
        for _ in range(7):
            first.run(1)
            second.run(1)
        for training in (first, second):
            training.strategy.average()
            assert training.equal_everywhere()


def check_users_may_have_sets_of_the_same_ranks() -> None:
    with nodes_of(max(1, hvd.size() // 2)) as nodes:
        training = Training(daso(2, 1)).run(3)
        sets = [hvd.add_process_set(ranks) for ranks in nodes if len(ranks) > 1]
        for one in sets:
            if one.included():
                total = hvd.allreduce(torch.ones(3), op=hvd.Sum, process_set=one)
                assert torch.equal(total, torch.full((3,), float(one.size())))
        training.run(3, ends=True)
        for one in sets:
            hvd.remove_process_set(one)
        assert training.run(3, ends=True).equal_everywhere()


def check_another_job_begins_with_wrapping_again() -> None:
    with nodes_of(max(1, hvd.size() // 2)):
        training = Training(daso(2)).run(3)
        hvd.barrier()  # a rank that leaves ends what others have on the wire
        hvd.shutdown()
        hvd.init()
        with pytest.raises(RuntimeError, match=r"after hvd\.init\(\), give the optimizer to"):
            training.run(1)
        hvd.broadcast_parameters(training.model.state_dict(), root_rank=0)
        hvd.DistributedOptimizer(training.optimizer, strategy=daso(2))
        assert training.run(3, ends=True).equal_everywhere()
