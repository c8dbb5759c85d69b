"""The gate on several ranks: all take the plan that was the fastest, and no gradient is lost on the way."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, run_check
from roundelay.timeline import events
from roundelay.torch._internal.optimizer.distributed import wrapper_of
from roundelay.torch._internal.tuning import pool_tuner
from roundelay.torch._internal.tuning.gate import Watch
from roundelay.tuning.buckets import Cuts
from small_gradients import add_gradients, make_parameters, use_pool

BUCKETS = 4
LOG = "ROUNDELAY_AUTOTUNE_LOG"
TRACE = "AUTO_TRACE"
ALGORITHMS = os.environ.get("ROUNDELAY_FABRIC") == "mpi"  # they are different ways, unlike over shm
REPORT = ("the_answer_is_in_the_log_the_timeline_and_the_stats",)
JOINED = ("algorithms_join_a_search_with_autotune",)
AGAIN = (
    "a_search_begins_again_when_steps_take_another_time",
    "a_search_begins_again_when_gradients_come_in_another_order",
)
SEARCH = ("sizes_and_plans_are_searched_at_once", "lossy_candidates_are_flushed_before_sizes_change")


@pytest.mark.parametrize("np", [2, 4])
@pytest.mark.checks_of(but=(*REPORT, *JOINED, *AGAIN, *SEARCH))
def test_auto(np: int, check: Check) -> None:
    run_check(check, np, env={"ROUNDELAY_THETA": "64"})


@pytest.mark.checks_of(only=AGAIN)
def test_a_search_begins_again(check: Check) -> None:
    run_check(check, 2, env={"ROUNDELAY_THETA": "64"})


@pytest.mark.checks_of(only=REPORT)
def test_report(check: Check, folder: Path) -> None:
    trace = str(folder / "trace.json")
    env = {"ROUNDELAY_TIMELINE": "DYNAMIC", TRACE: trace}  # the log's level is the default
    run_check(check, 2, env={"ROUNDELAY_THETA": "64", **env})


@pytest.mark.checks_of(only=("algorithms_are_candidates",))
def test_algorithms_between_nodes(check: Check) -> None:
    run_check(check, 3, env={"ROUNDELAY_THETA": "64", "ROUNDELAY_FABRIC": "mpi"})


@pytest.mark.checks_of(only=JOINED)
@pytest.mark.parametrize("deterministic", ["0", "1"])
def test_algorithms_join_a_search_with_autotune(deterministic: str, check: Check) -> None:
    forbids = {"ROUNDELAY_DETERMINISTIC": deterministic}
    run_check(
        check,
        3,
        env={"ROUNDELAY_THETA": "64", "ROUNDELAY_FABRIC": "mpi", "ROUNDELAY_AUTOTUNE": "1", **forbids},
    )


@pytest.mark.checks_of(only=(*SEARCH, *JOINED))
def test_one_search_of_sizes_and_plans(check: Check, folder: Path) -> None:
    log = folder / "search.jsonl"
    run_check(check, 2, env={"ROUNDELAY_AUTOTUNE": "1", LOG: str(log)})


@contextmanager
def _clock(duration: Callable[[], float]) -> Iterator[None]:
    """Makes steps take so many seconds, for the search."""
    now = 0.0

    def read() -> float:
        nonlocal now
        now += duration()
        return now

    with mock.patch.object(pool_tuner, "time", mock.Mock(perf_counter=read)):
        yield


def _train(auto: hvd.strategies.Auto, slow: int, steps: int = 120) -> torch.optim.Optimizer:
    """Takes steps, which take longer while a bucket has the candidate number ``slow``."""
    parameters = make_parameters(BUCKETS, 16)
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy=auto)
    use_pool(optimizer)
    with _clock(lambda: 2.0 if slow in auto.plan else 1.0):
        for _ in range(steps):
            _step(parameters, optimizer)
    return optimizer


def _step(parameters: list[torch.nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    add_gradients(*((parameter, hvd.rank() + 1.0) for parameter in parameters))
    optimizer.step()


def _plans(auto: hvd.strategies.Auto) -> list[list[int]]:
    own = torch.tensor(auto.plan, dtype=torch.int32)
    return hvd.allgather(own.unsqueeze(0)).tolist()


def check_all_ranks_take_the_fastest() -> None:
    auto = hvd.strategies.Auto(("dense", "bf16"), trial_steps=3)
    optimizer = _train(auto, slow=0)
    assert _plans(auto) == [[1] * BUCKETS] * hvd.size()
    assert hvd.strategies.of(optimizer) is auto
    if hvd.rank() == 0:
        assert auto.choice.startswith("dense:wire=bf16 (dense ")
        assert " ms a step)" in auto.choice
    assert "dense:wire=bf16" in hvd.report()
    assert "half:wire=bf16" in hvd.report(verbose=True)


def check_no_gradient_is_lost_by_all_that_may_be_tried() -> None:
    """Dense is the fastest at the end, so that all others have been flushed."""
    auto = hvd.strategies.Auto(trial_steps=1, loss="lossy")
    steps = 160
    optimizer = _train(auto, slow=-1, steps=1)
    parameters = optimizer.param_groups[0]["params"]
    tried: set[int] = set()
    with _clock(lambda: 1.0 if set(auto.plan) == {0} else 2.0):
        for _ in range(steps - 1):
            tried.update(auto.plan)
            _step(parameters, optimizer)
    assert tried == set(range(len(auto.choices.costs)))
    assert _plans(auto) == [[0] * BUCKETS] * hvd.size()
    expected = steps * hvd.size() * (hvd.size() + 1) / 2
    for parameter in parameters:
        assert parameter.detach().tolist() == pytest.approx([-expected] * 16, rel=1e-5)


def check_algorithms_are_candidates() -> None:
    auto = hvd.strategies.Auto(("dense", "ring", "halving_doubling"), trial_steps=3)
    optimizer = torch.optim.SGD(make_parameters(BUCKETS, 16), lr=1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy=auto)
    parameters = optimizer.param_groups[0]["params"]
    use_pool(optimizer)
    with _clock(lambda: 1.0 if 2 in auto.plan else 2.0):
        for _ in range(60):
            _step(parameters, optimizer)
    if not ALGORITHMS:  # shared memory has one way
        assert _plans(auto) == [[0] * BUCKETS] * hvd.size()
        if hvd.rank() == 0:
            assert auto.choice == "dense: the candidates are no other way here"
        return
    assert _plans(auto) == [[2] * BUCKETS] * hvd.size()
    assert {float(-p.detach()[0]) for p in parameters} == {60 * hvd.size() * (hvd.size() + 1) / 2}
    if hvd.rank() == 0:
        assert auto.choice.startswith("allreduce:algorithm=halving_doubling (dense ")
    for name in ("ring", "halving_doubling"):
        assert f"allreduce:algorithm={name}" in hvd.report()


def check_algorithms_join_a_search_with_autotune() -> None:
    auto = hvd.strategies.Auto(("dense",), trial_steps=1)
    optimizer = torch.optim.SGD(make_parameters(BUCKETS, 16), lr=1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy=auto)
    allowed = os.environ.get("ROUNDELAY_DETERMINISTIC", "0") == "0"
    if not ALGORITHMS or not allowed:  # shared memory has one way
        assert len(auto.choices.costs) == 1
        return
    assert len(auto.choices.costs) == 8
    parameters = optimizer.param_groups[0]["params"]
    use_pool(optimizer)
    best = "allreduce:algorithm=halving_doubling"
    with _clock(lambda: 1.0 if auto.plan and auto.choices.named(auto.plan) == best else 2.0):
        for _ in range(100):
            _step(parameters, optimizer)
    assert hvd.allgather_object(auto.choices.named(auto.plan)) == [best] * hvd.size()
    assert {float(-p.detach()[0]) for p in parameters} == {100 * hvd.size() * (hvd.size() + 1) / 2}
    assert auto.state_dict()["plan"] == [0] * BUCKETS  # a job without autotune can take it
    assert auto.text == "auto:candidates=[dense],trial_steps=1"


def check_dense_is_kept_where_nothing_pays() -> None:
    for candidate in ("bf16", "fp16"):
        auto = hvd.strategies.Auto((candidate,), trial_steps=3)
        optimizer = _train(auto, slow=1)
        assert _plans(auto) == [[0] * BUCKETS] * hvd.size()
        if hvd.rank() == 0:
            assert auto.choice.startswith("dense: nothing pays here (dense ")
        assert f"dense:wire={candidate}" in hvd.report()
        del optimizer


@contextmanager
def _stderr_in(path: Path) -> Iterator[None]:
    """Puts what this process writes to stderr, the core's log too, into a file."""
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def check_the_answer_is_in_the_log_the_timeline_and_the_stats() -> None:
    trace = Path(os.environ[TRACE])
    log = trace.with_suffix(f".{hvd.rank()}")
    for slow, answer in (
        (1, "dense: nothing pays here (dense 1000.0 ms, dense:wire=bf16 2000.0 ms a step)"),
        (0, "dense:wire=bf16 ("),
    ):
        before = hvd.stats()
        hvd.start_timeline(str(trace))
        auto = hvd.strategies.Auto(("bf16",), trial_steps=3)
        with _stderr_in(log):
            optimizer = _train(auto, slow)
        hvd.stop_timeline()
        after = hvd.stats()
        new = {name: after[name] - before[name] for name in ("gate_searches", "gate_kept_dense")}
        said = f"strategy auto keeps {answer}"
        if hvd.rank() > 0:
            assert new == {"gate_searches": 0, "gate_kept_dense": 0}
            assert "strategy auto keeps" not in log.read_text()
            continue
        assert auto.choice.startswith(answer)
        assert new == {"gate_searches": 1, "gate_kept_dense": slow}
        assert after["gate_dense_ns"] == (1e9 if slow else 2e9)
        assert after["gate_kept_ns"] == 1e9
        assert log.read_text().count(said) == 1
        assert [e.name for e in events.read(str(trace)).events if e.name.startswith(said)] != []
        del optimizer


def check_a_search_begins_again_when_steps_take_another_time() -> None:
    with mock.patch.multiple(Watch, STEPS=4, WINDOWS=2):
        auto = hvd.strategies.Auto(("bf16",), trial_steps=3)
        optimizer = _train(auto, slow=0)
        assert _plans(auto) == [[1] * BUCKETS] * hvd.size()
        searches = hvd.stats()["gate_searches"]
        parameters = optimizer.param_groups[0]["params"]
        for bf16, plan, again in ((1.2, 1, 0), (1.3, 0, 1)):  # a fifth more is no reason to search
            with _clock(lambda bf16=bf16: bf16 if 1 in auto.plan else 1.0):  # type: ignore[misc]
                for _ in range(60):
                    _step(parameters, optimizer)
            assert _plans(auto) == [[plan] * BUCKETS] * hvd.size()
            assert hvd.stats()["gate_searches"] - searches == (again if hvd.rank() == 0 else 0)
    moved = {value for parameter in parameters for value in (-parameter.detach()).tolist()}
    assert moved == {240 * hvd.size() * (hvd.size() + 1) / 2}


def check_a_search_begins_again_when_gradients_come_in_another_order() -> None:
    with mock.patch.object(pool_tuner, "PATIENCE", 5):
        auto = hvd.strategies.Auto(("bf16",), trial_steps=3)
        optimizer = _train(auto, slow=0)
        assert _plans(auto) == [[1] * BUCKETS] * hvd.size()
        orders = hvd.stats()["pool_orders"]
        parameters = optimizer.param_groups[0]["params"]
        with _clock(lambda: 1.0 if 1 in auto.plan else 0.5):  # a step takes as long as before
            for turned, plan in ((False, 1), (True, 0)):
                for _ in range(60):
                    _step(parameters[::-1] if turned else parameters, optimizer)
                assert _plans(auto) == [[plan] * BUCKETS] * hvd.size()
        assert hvd.stats()["pool_orders"] == orders + 1


def check_what_a_lossy_candidate_keeps_is_sent_when_it_is_left() -> None:
    csc = hvd.strategies.CSC(0.5, 4, momentum=None, dense_below=0)
    auto = hvd.strategies.Auto(("dense", csc), trial_steps=3)
    steps = 150
    parameters = make_parameters(BUCKETS, 16)
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy=auto)
    use_pool(optimizer)
    begin = [parameter.detach().clone() for parameter in parameters]
    with _clock(lambda: 2.0 if 1 in auto.plan else 1.0):
        for _ in range(steps):
            _step(parameters, optimizer)
    assert _plans(auto) == [[0] * BUCKETS] * hvd.size()
    assert "csc:chunk_elements=4,keep=0.5" in hvd.report()
    assert "before=" not in hvd.report()
    assert "csc:before=" in hvd.report(verbose=True)
    size = hvd.size()
    moved = sum(float((b - p).detach().sum()) for p, b in zip(parameters, begin, strict=True))
    assert moved == steps * BUCKETS * 16 * size * (size + 1) / 2


def check_a_lossy_candidate_begins_with_auto() -> None:
    """It is first used in a trial, when the optimizer has a state: that is no reason to warn."""
    for loaded in (False, True):
        csc = hvd.strategies.CSC(0.5, 4, momentum=None, dense_below=0)
        parameters = make_parameters(BUCKETS, 16)
        optimizer = torch.optim.SGD(parameters, lr=1.0, momentum=0.5)
        if loaded:  # from a checkpoint without the strategy's state, of which rank 0 warns
            optimizer.state[parameters[0]]["momentum_buffer"] = torch.zeros(16)
        auto = hvd.strategies.Auto(("dense", csc), trial_steps=3)
        hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy=auto)
        with warnings.catch_warnings(record=True) as found, _clock(lambda: 2.0):
            warnings.simplefilter("always")
            use_pool(optimizer)
            for _ in range(60):
                _step(parameters, optimizer)
        assert "csc:" in hvd.report()
        said = [str(one.message) for one in found if "nothing kept back" in str(one.message)]
        assert len(said) == int(loaded and hvd.rank() == 0), said


def check_a_state_has_the_plan() -> None:
    auto = hvd.strategies.Auto(("dense", "bf16"), trial_steps=3)
    trained = _train(auto, slow=0)
    state = auto.state_dict()
    assert state["plan"] == [1] * BUCKETS
    other = hvd.strategies.Auto(("dense", "bf16"), trial_steps=3)
    del trained
    optimizer = torch.optim.SGD(make_parameters(BUCKETS, 16), lr=1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy=other)
    other.load_state_dict(state)
    assert other.plan == (1,) * BUCKETS
    with pytest.raises(ValueError, match="no state of strategy"):
        other.load_state_dict({**state, "plan": [7]})
    assert wrapper_of(optimizer) is not None


def _cuts(optimizer: torch.optim.Optimizer) -> Cuts:
    wrapper = wrapper_of(optimizer)
    assert wrapper is not None
    assert wrapper.gradient_hooks.sync is not None
    cuts = wrapper.gradient_hooks.sync.cuts()
    assert cuts is not None
    return cuts


def _search(auto: hvd.strategies.Auto, best: tuple[int, int]) -> None:
    """Trains until the search is over; ``best`` is the candidate and the theta of the fastest steps.

    Every step's sums are exact, whatever is tried, and all ranks have one setting after each.
    """
    size, number = 1 << 14, 24  # 1.5 MiB: sizes matter, and operations are measured
    parameters = make_parameters(number, size)
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy=auto)
    use_pool(optimizer)
    log = Path(os.environ[LOG])
    lines = len(log.read_text().splitlines()) if log.exists() else 0
    candidate, theta = best
    seen = set()

    def duration() -> float:
        return 1.0 + (candidate not in auto.plan) + 0.5 * (_cuts(optimizer).theta != theta)

    with _clock(duration):
        for step in range(400):
            _step(parameters, optimizer)
            settings = hvd.allgather_object((_cuts(optimizer), auto.plan))
            assert settings == settings[:1] * hvd.size(), step
            seen.add(settings[0])
            if hvd.broadcast_object(log.exists() and len(log.read_text().splitlines()) > lines):
                break
        else:
            raise AssertionError("the search does not end")
        for _ in range(12):  # a technique with state is flushed before the last change
            _step(parameters, optimizer)
    moved = {value for parameter in parameters for value in (-parameter.detach()).tolist()}
    assert moved == {(step + 13) * hvd.size() * (hvd.size() + 1) / 2}
    found = [json.loads(line) for line in log.read_text().splitlines()[lines:]]
    kept = [line for line in found if line["kept"]]
    tried = {(line["theta"], line["strategy"]) for line in found}
    assert len(kept) == 1
    assert kept[0]["step_ms"] == min(line["step_ms"] for line in found)
    assert kept[0]["theta"] == _cuts(optimizer).theta
    assert kept[0]["strategy"] == auto.choices.named(auto.plan)
    assert len({theta for theta, _ in tried}) >= 2
    assert len({strategy for _, strategy in tried}) >= 2
    assert len({(cuts.theta, auto.choices.named(plan)) for cuts, plan in seen}) >= len(tried)
    if hvd.rank() == 0:
        assert auto.choice.startswith(f"{kept[0]['strategy']} with theta ")


def check_sizes_and_plans_are_searched_at_once() -> None:
    for theta in (1 << 18, 1 << 20):
        _search(hvd.strategies.Auto(("dense", "bf16"), trial_steps=2), (1, theta))


def check_lossy_candidates_are_flushed_before_sizes_change() -> None:
    csc = hvd.strategies.CSC(0.5, 64, momentum=None, dense_below=0)
    _search(hvd.strategies.Auto(("dense", csc), trial_steps=2), (0, 1 << 18))
