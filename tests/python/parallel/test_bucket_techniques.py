"""The technique of a bucket: its text, its state, and what ranks get that do not agree."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, run_check
from roundelay import _core
from roundelay.errors import MismatchError
from technique_libraries import CYCLIC, NEGATE, canonical

SIZES = (5, 33, 7)  # odd: padding lies between them
PADDED_BYTES = 64 + 192 + 28
NEGATED, PARTED = canonical(NEGATE), canonical(CYCLIC)


@pytest.mark.parametrize("np", [1, 2, 4])
def test_bucket_techniques(np: int, check: Check) -> None:
    run_check(check, np)


class Pooled:
    """One bucket with parameters of SIZES."""

    keys = 100

    def __init__(self, name: str, op: int = hvd.Sum) -> None:
        Pooled.keys += 1
        self.parameters = [torch.nn.Parameter(torch.zeros(size)) for size in SIZES]
        self.pool = _core.GradientPool(Pooled.keys, PADDED_BYTES, 0, self.parameters[0].device)
        self.bucket = _core.Bucket(name, self.pool, _core.Rule(op=op))
        begin = 0
        for index, parameter in enumerate(self.parameters):
            gradient = _core.Gradient(parameter, f"{name}.{index}", True)
            self.bucket.add(gradient, self.pool.add(begin, parameter, torch.float32))
            begin += -(-parameter.numel() * 4 // 64) * 64
        hvd.barrier()  # all ranks have made their parts

    def start(self, values: Sequence[torch.Tensor]) -> None:
        self.bucket.new_step()
        self.pool.take_submissions()
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter.grad = value.clone()
        self.bucket.submit()

    def technique(self) -> str | None:
        return self.bucket.technique

    def unflushed(self) -> bool:
        return self.bucket.unflushed

    def state(self) -> torch.Tensor | None:
        return self.bucket.state

    def reduce(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        self.start(values)
        self.bucket.finish()
        return [parameter.grad.clone() for parameter in self.parameters if parameter.grad is not None]


def _ones(factor: float = 1.0) -> list[torch.Tensor]:
    return [torch.full((size,), factor * (hvd.rank() + 1)) for size in SIZES]


def _summed(results: Sequence[torch.Tensor], factor: float = 1.0) -> None:
    expected = factor * hvd.size() * (hvd.size() + 1) / 2
    for result in results:
        assert torch.equal(result, torch.full_like(result, expected))


def check_texts() -> None:
    one = Pooled("texts")
    assert one.technique() is None
    known = [name for name, _ in _core.techniques()]
    assert {"csc", "half", "topk"} <= set(known)
    for wrong, name in (
        ("nonsense", "nonsense"),
        (f"{CYCLIC}:parts=0", "cyclic"),
        (f"{CYCLIC}:holes=3", "cyclic"),
        (f"{NEGATE}:parts=4", "negate"),
    ):
        with pytest.raises(ValueError, match=f"technique '{name}'"):
            one.bucket.set_technique(wrong)
        assert one.technique() is None
    one.bucket.set_technique(f"{CYCLIC}:parts=004")
    assert one.technique() == PARTED
    one.bucket.set_technique("dense")
    assert one.technique() is None
    assert _core.levels(0, on_gpu=False) == [hvd.size()]


def check_a_technique_without_state() -> None:
    one = Pooled("negate")
    _summed(one.reduce(_ones()))
    one.bucket.set_technique(NEGATE)
    assert one.state() is None
    for _ in range(2):
        _summed(one.reduce(_ones()))
    assert not one.unflushed()
    one.bucket.set_technique(None)
    _summed(one.reduce(_ones()))
    assert one.bucket.traffic == [
        ("dense", 2, 2 * PADDED_BYTES, 2 * PADDED_BYTES),
        (NEGATED, 2, 2 * PADDED_BYTES, 2 * PADDED_BYTES),
    ]


def check_state_is_kept_until_a_flush() -> None:
    one = Pooled("state")
    one.bucket.set_technique(CYCLIC)
    state = one.state()
    assert state is not None
    assert state.dtype == torch.uint8
    assert not state.any()
    assert not one.unflushed()
    sums = [torch.zeros(size) for size in SIZES]
    for _ in range(3):
        for total, result in zip(sums, one.reduce(_ones()), strict=True):
            total += result
    assert one.unflushed()
    assert state.any()
    one.bucket.set_technique(CYCLIC)
    assert one.state() is state
    with pytest.raises(RuntimeError, match=rf"'{PARTED}' may keep gradients .* flush_next"):
        one.bucket.set_technique(NEGATE)
    assert one.technique() == PARTED
    one.bucket.flush_next()
    for total, result in zip(sums, one.reduce(_ones()), strict=True):
        total += result
    _summed(sums, 4.0)
    assert not one.unflushed()
    assert not state.any()
    (technique, operations, size, sent), *more = one.bucket.traffic
    assert (technique, operations, size, more) == (PARTED, 4, 4 * PADDED_BYTES, [])
    assert PADDED_BYTES < sent < 3 * PADDED_BYTES
    one.bucket.set_technique(NEGATE)
    assert one.state() is None
    state.fill_(1)  # it is nobody's memory any more
    _summed(one.reduce(_ones()))


def check_a_written_state_is_flushed_first() -> None:
    one = Pooled("written")
    one.bucket.set_technique(f"{CYCLIC}:parts=2")
    state = one.state()
    assert state is not None
    state.copy_(torch.zeros_like(state))
    assert one.unflushed()
    with pytest.raises(RuntimeError, match="flush_next"):
        one.bucket.set_technique(None)
    one.bucket.flush_next()
    _summed(one.reduce(_ones()))
    one.bucket.set_technique(None)


def check_csc_says_what_it_sent() -> None:
    one = Pooled("csc")
    one.bucket.set_technique("csc:chunk=16,dense=0,keep=0.5")
    assert one.bucket.sent() is None
    size = hvd.size()
    assert (
        one.technique() == "csc:before=0,chunk=16,dense=0,keep=0.5,momentum=0,nesterov=0,norms=same,wire=none"
    )
    came = [torch.zeros(size) for size in SIZES]
    got = [torch.zeros(size) for size in SIZES]
    for run in range(6):
        assert one.bucket.run == run
        values = [torch.arange(count) * (hvd.rank() + 1.0) for count in SIZES]
        results = one.reduce(values)
        for total, result in zip(got, results, strict=True):
            total += result
        for total, value in zip(came, values, strict=True):
            total += value / (hvd.rank() + 1) * size * (size + 1) / 2
        assert torch.equal(got[0], came[0])  # parameter 0 always goes densely
        sent = one.bucket.sent()
        assert sent is not None
        chunk, indices, dense = sent
        assert (chunk, dense, indices.dtype) == (16, [0], torch.int32)
        assert torch.equal(hvd.allreduce(indices, op=hvd.Max), hvd.allreduce(indices, op=hvd.Min))
        of_second = {
            index - 1 for index in indices.tolist() if 1 <= index <= 3
        }  # chunk 1 begins the parameter
        for part in range(3):
            piece = slice(16 * part, 16 * part + 16)
            assert part in of_second or not results[1][piece].any()
            assert part not in of_second or torch.equal(got[1][piece], came[1][piece])
    one.bucket.flush_next()
    for total, result in zip(got, one.reduce([torch.zeros(size) for size in SIZES]), strict=True):
        total += result
    assert all(map(torch.equal, got, came))
    assert (one.bucket.sent(), one.bucket.run) == (None, 0)
    with pytest.raises(ValueError, match="the bucket has 3 parameters, and no parameter 3"):
        one.bucket.set_technique("csc:dense=3")


def check_what_is_kept_can_be_rescaled() -> None:
    for technique in (f"{CYCLIC}:parts=8", "csc:chunk=16,keep=0.1", "csc:chunk=16,keep=0.1,momentum=0.5"):
        one = Pooled(f"rescaled {technique}")
        one.bucket.rescale(3.0)  # nothing
        one.bucket.set_technique(technique)
        first = one.reduce(_ones())
        one.bucket.rescale(0.5)
        assert one.bucket.unflushed
        one.bucket.flush_next()
        rest = one.reduce([torch.zeros(size) for size in SIZES])
        whole = hvd.size() * (hvd.size() + 1) / 2
        for sent, later in zip(first, rest, strict=True):
            assert torch.equal(sent + 2 * later, torch.full_like(sent, whole))


def check_a_bucket_in_flight_keeps_its_technique() -> None:
    one = Pooled("flight")
    one.bucket.set_technique(NEGATE)
    one.start(_ones())
    with pytest.raises(RuntimeError, match="in flight"):
        one.bucket.set_technique(None)
    with pytest.raises(RuntimeError, match="in flight"):
        one.bucket.run = 3
    with pytest.raises(RuntimeError, match="in flight"):
        one.bucket.rescale(2.0)
    one.bucket.finish()


def check_a_rank_that_differs_is_an_error_on_all() -> None:
    one = Pooled("differs")
    last = hvd.size() - 1
    one.bucket.set_technique(CYCLIC if hvd.rank() == last else NEGATE)
    if hvd.size() > 1:
        both = rf"rank \d has technique '{NEGATED}', rank \d has technique '{PARTED}'"
        with pytest.raises(MismatchError, match=both):
            one.reduce(_ones())
        one.bucket.abandon()
    if one.bucket.unflushed:  # a failed operation: the state is of this rank alone
        one.bucket.flush_next()
    hvd.barrier()


def check_an_operation_that_one_rank_ignores_is_a_run_on_all() -> None:
    one = Pooled("ignored")
    one.bucket.set_technique("csc:chunk=16,keep=0.5")
    for flush in (False, False, True, False):
        if flush:
            one.bucket.flush_next()
        before = one.bucket.run
        one.start(_ones())
        if hvd.rank() == 0:
            one.bucket.abandon()
        else:
            one.bucket.finish()
        assert one.bucket.run == (0 if flush else before + 1)
        for result in one.reduce(_ones()):  # the quota depends on the run
            assert torch.equal(hvd.allreduce(result, op=hvd.Max), hvd.allreduce(result, op=hvd.Min))
    one.bucket.flush_next()
    one.reduce(_ones())
    assert not one.bucket.unflushed


def check_only_sums_of_floating_point_take_a_technique() -> None:
    one = Pooled("min", hvd.Min)
    one.bucket.set_technique(NEGATE)
    with pytest.raises(ValueError, match="technique needs op=Sum or op=Average"):
        one.reduce(_ones())
    one.bucket.set_technique(None)
    for result in one.reduce(_ones()):
        assert torch.equal(result, torch.ones_like(result))


def check_average() -> None:
    one = Pooled("average", hvd.Average)
    dense = one.reduce(_ones(0.1))
    one.bucket.set_technique(f"{CYCLIC}:parts=1")
    for mine, other in zip(one.reduce(_ones(0.1)), dense, strict=True):
        assert torch.equal(mine, other)


def check_a_change_of_technique_ends_the_schedule_and_a_new_one_forms() -> None:
    one = Pooled("locked")
    before = hvd.stats()
    for technique in (NEGATE, f"{CYCLIC}:parts=2", NEGATE):
        one.bucket.set_technique(technique)
        for _ in range(20):
            one.reduce(_ones())
        one.bucket.flush_next()
        one.reduce(_ones())
    after = hvd.stats()
    assert after["technique_operations"] - before["technique_operations"] == 63
    assert after["technique_bytes"] - before["technique_bytes"] == 63 * PADDED_BYTES
    sent = after["technique_called_bytes"] - before["technique_called_bytes"]
    assert 42 * PADDED_BYTES < sent < 63 * PADDED_BYTES
    if hvd.size() > 1:
        assert after["schedule_locks"] - before["schedule_locks"] >= 2
        assert after["locked_operations"] > before["locked_operations"]
