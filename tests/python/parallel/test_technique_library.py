"""Techniques that are compiled outside of the tree: the bits of dense, and ranks whose libraries differ."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from exact_training import Training
from parallel.test_bucket_techniques import SIZES, Pooled
from random_values import normal
from ranks import ROOT, Check, run_check
from roundelay.errors import MismatchError
from technique_libraries import CYCLIC, EXAMPLE, canonical, compile_library


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Returns the texts of libraries that this test has compiled, as a rank's environment."""
    folder = tmp_path_factory.mktemp("libraries")
    negate = compile_library(EXAMPLE, folder / "negate.so")
    other = compile_library(EXAMPLE, folder / "other.so", "-O2")
    source = ROOT / "tests" / "cpp" / "techniques" / "cyclic.cc"
    cyclic = compile_library(source, folder / "cyclic.so")
    elsewhere = shutil.copy(cyclic, folder / "elsewhere.so")
    return {
        "NEGATE": f"{negate}:negate",
        "OTHER_NEGATE": f"{other}:negate",
        "PARTED": f"{cyclic}:cyclic:parts=3",
        "PARTED_ELSEWHERE": f"{elsewhere}:cyclic:parts=3",
        "ROUNDELAY_THETA": "256",  # several buckets
    }


@pytest.mark.parametrize("np", [2, 4])
def test_technique_library(np: int, texts: dict[str, str], check: Check) -> None:
    run_check(check, np, env=texts)


def _trained(strategy: str) -> list[torch.Tensor]:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(7, 13), nn.Tanh(), nn.Linear(13, 11), nn.Tanh(), nn.Linear(11, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    hvd.DistributedOptimizer(optimizer, model.named_parameters(), strategy=strategy)
    generator = torch.Generator().manual_seed(hvd.rank())
    for _ in range(8):
        optimizer.zero_grad()
        model(normal(generator, 4, 7)).square().mean().backward()
        optimizer.step()
    assert strategy in "".join(hvd.report().split())
    assert "negate@" not in hvd.report()
    assert ("negate@" in hvd.report(verbose=True)) == ("negate" in strategy)
    return [parameter.detach().clone() for parameter in model.parameters()]


def check_training_has_the_bits_of_dense() -> None:
    dense = _trained("dense")
    assert all(map(torch.equal, _trained(os.environ["NEGATE"]), dense))


def check_the_path_may_differ_between_ranks() -> None:
    training = Training(os.environ["PARTED" if hvd.rank() == 0 else "PARTED_ELSEWHERE"])
    for _ in range(7):
        training.step()
    assert training.techniques.table.keeps_something()
    training.check_all_came()


def check_strategies_of_different_libraries_are_an_error_on_all() -> None:
    ours, theirs = os.environ["NEGATE"], os.environ["OTHER_NEGATE"]
    training = Training(theirs if hvd.rank() == hvd.size() - 1 else ours)
    with pytest.raises(MismatchError, match="differ between ranks") as raised:
        training.step()
    error = str(raised.value)
    assert repr(canonical(ours)) in error
    assert repr(canonical(theirs)) in error
    assert len(set(hvd.allgather_object(error))) == 1
    hvd.DistributedOptimizer(training.optimizer, op=hvd.Sum, strategy=ours)  # the cure
    training.step()


def check_buckets_of_different_libraries_are_an_error_on_all() -> None:
    """A strategy of one's own may choose them, whose text the libraries are not in."""
    ours, theirs = os.environ["NEGATE"], os.environ["OTHER_NEGATE"]
    one = Pooled("libraries")
    one.bucket.set_technique(theirs if hvd.rank() == hvd.size() - 1 else ours)
    values = [torch.ones(size) for size in SIZES]
    with pytest.raises(MismatchError, match="has technique") as raised:
        one.reduce(values)
    for text in (ours, theirs):
        assert f"has technique '{canonical(text)}'" in str(raised.value)
    assert len(set(hvd.allgather_object(str(raised.value)))) == 1
    one.bucket.abandon()
    one.bucket.set_technique(ours)
    for result in one.reduce(values):
        assert torch.equal(result, torch.full_like(result, float(hvd.size())))


def check_a_state_loads_where_the_library_has_another_path() -> None:
    training = Training(os.environ["PARTED"])
    for _ in range(7):
        training.step()
    state = training.strategy.state_dict()
    again = Training(os.environ["PARTED_ELSEWHERE"])
    again.strategy.load_state_dict(state)
    for parameter, trained in zip(again.parameters, training.parameters, strict=True):
        parameter.data.copy_(trained)
    again.given = [one.clone() for one in training.given]
    again.step()
    again.check_all_came()
    changed = Training(f"{CYCLIC}:parts=3")  # compiled by other flags
    with pytest.raises(ValueError, match="another strategy: it is of strategy 'cyclic@.*', and this is"):
        changed.strategy.load_state_dict(state)


def check_a_library_that_one_rank_lacks_is_an_error_there() -> None:
    """The other ranks hear of it as of any rank that stops: here all go on."""
    if hvd.rank() == 0:
        absent = Path(os.environ["NEGATE"].partition(":")[0]).with_name("absent.so")
        with pytest.raises(ValueError, match=f"the library '{absent}' cannot be opened"):
            Training(f"{absent}:negate")
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).tolist() == [hvd.size()]
