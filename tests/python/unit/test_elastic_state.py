"""States and samplers of elastic training in one process, and what the launcher reads."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from roundelay.run.elastic import job
from roundelay.run.elastic.discovery import parse
from roundelay.run.errors import UsageError
from roundelay.torch.elastic.copies import copied


@pytest.fixture(autouse=True)
def _one_rank() -> Any:
    hvd.init()
    yield
    hvd.shutdown()


def _trained() -> tuple[torch.nn.Linear, torch.optim.SGD]:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    _step(model, optimizer)
    return model, optimizer


def _step(model: torch.nn.Linear, optimizer: torch.optim.SGD) -> None:
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def test_a_state_goes_back_to_its_last_commit() -> None:
    model, optimizer = _trained()
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=1, seen=[1])
    before = [
        one.clone() for one in (model.weight.detach(), optimizer.state[model.weight]["momentum_buffer"])
    ]
    memory = model.weight.data_ptr()
    for _ in range(2):  # restoring must not spend what was saved
        _step(model, optimizer)
        state.epoch += 1
        state.seen.append(2)
        state.restore()
        after = model.weight.detach(), optimizer.state[model.weight]["momentum_buffer"]
        assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
        assert (state.epoch, state.seen) == (1, [1])
        assert model.weight.data_ptr() == memory
    state.epoch = 7
    _step(model, optimizer)
    state.commit()
    weight = model.weight.detach().clone()
    _step(model, optimizer)
    state.restore()
    assert state.epoch == 7
    assert torch.equal(model.weight.detach(), weight)


def test_an_attribute_is_the_object_and_can_be_replaced() -> None:
    model, optimizer = _trained()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, scheduler=scheduler)
    assert state.model is model
    assert state.scheduler is scheduler
    other = torch.nn.Linear(2, 2)
    state.model = other
    assert state.model is other
    optimizer.step()
    scheduler.step()
    state.restore()
    assert scheduler.last_epoch == 0
    with pytest.raises(AttributeError, match="no 'nothing'"):
        _ = state.nothing


def test_a_sampler_divides_what_is_left() -> None:
    sampler = hvd.elastic.ElasticSampler(range(10), shuffle=False)
    assert list(sampler) == list(range(10))
    sampler.record_batch(0, 3)
    sampler.record_batch(1, 3)
    sampler.reset()
    assert list(sampler) == [6, 7, 8, 9]
    assert len(sampler) == 4
    other = hvd.elastic.ElasticSampler(range(10), shuffle=False)
    other.load_state_dict(sampler.state_dict())
    assert list(other) == [6, 7, 8, 9]
    sampler.set_epoch(1)
    assert sorted(sampler) == list(range(10))


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_draw_each_sample_once(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roundelay.torch.elastic.sampler.size", lambda: ranks)
    drawn: list[int] = []
    for rank in range(ranks):
        monkeypatch.setattr("roundelay.torch.elastic.sampler.rank", lambda rank=rank: rank)
        sampler = hvd.elastic.ElasticSampler(range(24))
        drawn += sampler.get_indices(0, 4)
        sampler.record_batch(0, 4)
        assert sampler.processed_indices == set(sampler._padded[: 4 * ranks])
    assert sorted(drawn) == sorted(sampler.processed_indices)  # all ranks know what all have seen


def test_a_copy_takes_the_memory_of_the_last_one() -> None:
    first = copied({"a": torch.ones(3), "b": [torch.zeros(2), 1]})
    again = copied({"a": torch.full((3,), 2.0), "b": [torch.ones(2), 2]}, first)
    assert again["a"].data_ptr() == first["a"].data_ptr()
    assert again["a"].tolist() == [2.0] * 3
    assert again["b"][1] == 2
    other = copied({"a": torch.ones(4)}, first)
    assert other["a"].tolist() == [1.0] * 4


def test_hosts_are_read_as_horovods_scripts_print_them() -> None:
    assert parse("one:4\n two \n\n", 2) == {"one": 4, "two": 2}
    for text, words in (("", "no host"), ("one:x", "bad host"), ("one\none", "listed twice")):
        with pytest.raises(UsageError, match=words):
            parse(text, 1)


def test_the_timeout_of_horovod_is_read() -> None:
    def timeout(flag: float | None, **variables: str) -> float:
        return job._timeout(argparse.Namespace(elastic_timeout=flag), variables)

    assert timeout(None) == 600
    assert timeout(None, HOROVOD_ELASTIC_TIMEOUT="20") == 20
    assert timeout(5.0, HOROVOD_ELASTIC_TIMEOUT="20") == 5
    with pytest.raises(UsageError, match="HOROVOD_ELASTIC_TIMEOUT='x'"):
        timeout(None, HOROVOD_ELASTIC_TIMEOUT="x")
