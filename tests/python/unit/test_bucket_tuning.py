"""How a pool is cut, by hand-computed cases and properties; what watches it over the steps."""

from __future__ import annotations

import json
import random
import statistics
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundelay.torch._internal.tuning import gate
from roundelay.torch._internal.tuning.calibration import crowded, fit
from roundelay.torch._internal.tuning.gate import DENSE_COST, Cost
from roundelay.torch._internal.tuning.pool_tuner import PATIENCE, OrderWatch
from roundelay.torch._internal.tuning.search import Model, Search, Setting, worth_trying
from roundelay.tuning.buckets import (
    DEFAULT,
    Cuts,
    Extent,
    Link,
    Piece,
    candidates,
    choose,
    cut,
    out_of_place,
    pieces,
    predicted_end,
)

MIB = 1 << 20
NO_LIMIT = 1 << 40


def pool(*sizes: int, every: float = 0.0) -> list[Extent]:
    """Gradients of these bytes, side by side, that come at intervals."""
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    return [Extent(end - size, end, i * every) for i, (size, end) in enumerate(zip(sizes, ends, strict=True))]


SIZES = st.lists(st.integers(1, 100), min_size=1, max_size=30)
POOLS = SIZES.flatmap(
    lambda sizes: st.lists(st.floats(0, 10), min_size=len(sizes), max_size=len(sizes)).map(
        lambda ready: [Extent(e.begin, e.end, r) for e, r in zip(pool(*sizes), ready, strict=True)]
    )
)
CUTS = st.builds(Cuts, st.integers(0, 500), st.integers(0, 500))
LINKS = st.builds(Link, st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.1), st.floats(0, 1))


def test_buckets_are_cut_by_size_and_last_size() -> None:
    sizes = (4, 4, 4, 4, 4)
    assert cut(pool(*sizes), Cuts(8), NO_LIMIT) == [range(2), range(2, 4), range(4, 5)]
    assert cut(pool(*sizes), Cuts(9), NO_LIMIT) == [range(3), range(3, 5)]
    assert cut(pool(*sizes), Cuts(0), NO_LIMIT) == [range(i, i + 1) for i in range(5)]
    assert cut(pool(*sizes), Cuts(100), 0) == [range(i, i + 1) for i in range(5)]
    assert cut(pool(*sizes), Cuts(100), 9) == [range(2), range(2, 4), range(4, 5)]
    assert cut(pool(*sizes), Cuts(100, 5), NO_LIMIT) == [range(4), range(4, 5)]
    assert cut(pool(*sizes), Cuts(100, 8), NO_LIMIT) == [range(3), range(3, 5)]
    assert cut(pool(*sizes), Cuts(100, 1), NO_LIMIT) == [range(4), range(4, 5)]  # one is among them


@given(SIZES, CUTS, st.integers(0, 500))
def test_buckets_are_neighbours_never_empty_and_keep_their_limits(
    sizes: list[int], cuts: Cuts, most: int
) -> None:
    extents = pool(*sizes)
    buckets = cut(extents, cuts, most)
    assert [index for bucket in buckets for index in bucket] == list(range(len(sizes)))
    for bucket in buckets:
        bytes_ = sum(sizes[index] for index in bucket)
        assert len(bucket) > 0
        assert len(bucket) == 1 or bytes_ <= most
        assert len(bucket) == 1 or bytes_ - sizes[bucket[-1]] < cuts.theta
    if cuts.last and len(buckets[-1]) > 1:
        assert sum(sizes[index] for index in buckets[-1]) <= cuts.last


def test_predictions_by_hand() -> None:
    extents = pool(10, 10, every=5.0)  # there at 0 and 5
    link = Link(alpha=1.0, beta=0.1)  # two seconds for each, three for both
    assert predicted_end([extents], Cuts(10), NO_LIMIT, link) == pytest.approx(7.0)
    assert predicted_end([extents], Cuts(100), NO_LIMIT, link) == pytest.approx(8.0)
    slow = Link(alpha=1.0, beta=0.9)  # ten for each: the second waits for the first
    assert predicted_end([extents], Cuts(10), NO_LIMIT, slow) == pytest.approx(20.0)
    # All cores busy: backward loses the first one's two seconds, and half a second for each submit.
    busy = Link(alpha=1.0, beta=0.1, submit=0.5, share=1.0)
    assert predicted_end([extents], Cuts(10), NO_LIMIT, busy) == pytest.approx(5 + 0.5 + 2 + 0.5 + 2)
    assert predicted_end([extents], Cuts(100), NO_LIMIT, busy) == pytest.approx(5 + 0.5 + 3)
    # Of two pools: in the order in which buckets are full.
    assert predicted_end([extents, pool(10)], Cuts(10), NO_LIMIT, link) == pytest.approx(7.0)
    assert predicted_end([extents, pool(10)], Cuts(10), NO_LIMIT, slow) == pytest.approx(30.0)


@given(st.lists(POOLS, min_size=1, max_size=3), CUTS, LINKS)
def test_predictions_are_within_reason(pools: list[list[Extent]], cuts: Cuts, link: Link) -> None:
    end = predicted_end(pools, cuts, NO_LIMIT, link)
    number = sum(len(cut(one, cuts, NO_LIMIT)) for one in pools)
    work = number * link.alpha + link.beta * sum(one[-1].end for one in pools)
    backward = max(extent.ready for one in pools for extent in one)
    assert end >= backward
    assert end >= work - 1e-9
    assert end <= backward + number * link.submit + (1 + link.share) * work + 1e-9
    free = link._replace(submit=0.0, share=0.0)
    assert predicted_end(pools, cuts, NO_LIMIT, free) <= end + 1e-9


@given(POOLS, st.integers(0, 2000))
def test_candidates_differ_and_the_best_is_first(extents: list[Extent], most: int) -> None:
    scaled = [Extent(e.begin * MIB // 8, e.end * MIB // 8, e.ready) for e in extents]
    link = Link(0.01, 1e-9)
    every = candidates([scaled], most * MIB, link)
    shapes = [tuple(cut(scaled, one.cuts, most * MIB)) for one in every]
    assert len(set(shapes)) == len(shapes)
    assert [one.buckets for one in every] == [len(shape) for shape in shapes]
    ends = [one.predicted for one in every]
    assert all(end is not None for end in ends)
    assert ends == sorted(ends, key=lambda end: end or 0.0)
    chosen = choose([scaled], most * MIB, link)
    assert chosen.cuts == DEFAULT or chosen == every[0]


def test_the_chosen_cuts_fit_latency_and_overlap() -> None:
    fast = Link(alpha=20e-6, beta=1 / 10e9)
    resnet = pool(*[MIB] * 100, every=0.005)  # 100 MiB in half a second
    # Everything comes at once: what remains is latency, so one bucket (of no more than is allowed).
    at_once = pool(*[MIB] * 100)
    latency = Link(alpha=0.1, beta=1 / 10e9)
    assert choose([at_once], NO_LIMIT, latency).buckets == 1
    assert choose([at_once], 32 * MIB, latency).buckets == 4
    # Far apart: the end of the last bucket is all that counts, so small ones, and a small last one.
    assert choose([resnet], NO_LIMIT, fast).buckets >= 20
    slow_start = Link(alpha=1e-3, beta=1 / 1e9)
    chosen = choose([resnet], NO_LIMIT, slow_start)
    assert len(cut(resnet, chosen.cuts, NO_LIMIT)[-1]) == 1
    # No core is free for it: nothing is hidden, and small buckets gain nothing over the default.
    crowded = fast._replace(submit=50e-6, share=1.0)
    assert choose([resnet], NO_LIMIT, crowded).cuts == DEFAULT
    crowded = Link(alpha=5e-3, beta=1 / 10e9, submit=50e-6, share=1.0)
    assert choose([resnet], NO_LIMIT, crowded).buckets == 1


def test_gradients_out_of_their_order_are_noticed() -> None:
    assert not out_of_place([1, 2, 3])
    assert out_of_place([1, 3, 2])
    assert not out_of_place([1, 2, 0])  # the last waits for the end anyway
    assert out_of_place([1, 0, 2])
    assert not out_of_place([0, 0, 0])


@given(st.permutations(range(6)), st.integers(0, 6))
def test_only_the_pools_order_is_in_place(order: list[int], number: int) -> None:
    fired = order[:number]
    turns = [fired.index(bucket) + 1 if bucket in fired else 0 for bucket in range(6)]
    assert out_of_place(turns) == (fired != list(range(number)))


@given(st.floats(0, 1), st.floats(1e-9, 1e-6), st.lists(st.integers(1, 10**7), min_size=2, unique=True))
def test_a_line_is_fitted(alpha: float, beta: float, sizes: list[int]) -> None:
    fitted_alpha, fitted_beta = fit([(size, alpha + beta * size) for size in sizes])
    assert fitted_alpha == pytest.approx(alpha, abs=1e-6)
    assert fitted_beta == pytest.approx(beta, abs=1e-9)


def test_a_line_through_noise() -> None:
    assert fit([(4096, 3.0)]) == (0.0, 3.0 / 4096)
    assert fit([(1, 2.0), (1000, 1.0)]) == pytest.approx((0.4995, 0.001))  # the first was delayed
    alpha, beta = fit([(0, 1.0), (10, 2.0), (20, 3.0), (30, 400.0)])  # one of them was disturbed
    assert beta < 40
    assert alpha >= 0


@given(
    st.lists(st.floats(1e-7, 10), min_size=1, max_size=3),
    st.permutations([4 << 10, 256 << 10, 4 << 20]),
)
def test_a_fitted_link_has_a_cost_for_bytes(times: list[float], sizes: list[int]) -> None:
    alpha, beta = fit(list(zip(sizes, times, strict=False)))
    assert alpha >= 0
    assert 0 < beta < inf
    # No prediction exceeds twice the time that was measured for the largest size.
    largest, seconds = max(zip(sizes, times, strict=False))
    assert alpha + beta * largest <= 2.1 * seconds


@pytest.mark.parametrize(
    ("alpha", "bandwidth"), [(3e-5, 3e9), (2e-4, 1.1e9), (1e-3, 1e8)], ids=["memory", "10 Gbit", "1 Gbit"]
)
def test_the_load_of_others_changes_little(alpha: float, bandwidth: float) -> None:
    noise = random.Random(1)
    found = []
    for _ in range(500):
        samples = []
        for size in (4 << 10, 256 << 10, 4 << 20):
            waits = (noise.expovariate(1 / 4e-3) if noise.random() < 0.5 else 0.0 for _ in range(4))
            samples.append((size, min(alpha + size / bandwidth + wait for wait in waits)))
        found.append(fit(samples)[1] * bandwidth)
    assert min(found) > 0.01
    assert 0.9 < statistics.median(found) < 1.1
    assert sorted(found)[450] < 1.2


def test_load_makes_neither_one_bucket_nor_techniques_worthless() -> None:
    link = Link(*fit([(4 << 10, 5e-3), (256 << 10, 4e-3), (4 << 20, 3e-3)]))  # each delayed
    assert choose([pool(*[32 * MIB] * 8, every=0.1)], NO_LIMIT, link).buckets > 1
    assert gate.seconds(Cost(1, 0.5, 0), 4 << 20, link) < gate.seconds(DENSE_COST, 4 << 20, link)


@pytest.mark.parametrize(
    ("threads", "ranks", "allowed", "cores", "full"),
    [
        (1, 2, 2, 2, True),
        (1, 1, 2, 2, False),
        (2, 1, 2, 2, True),
        (1, 4, 16, 16, False),
        (4, 4, 16, 16, True),
        (1, 4, 1, 16, True),  # bound to a core each, where other cores idle
        (1, 4, 2, 16, False),
        (2, 8, 8, 16, True),  # four on each of two sockets
        (1, 8, 8, 16, False),
    ],
)
def test_cores_are_crowded_by_threads_of_all_ranks(
    threads: int, ranks: int, allowed: int, cores: int, full: bool
) -> None:
    assert crowded(threads, ranks, allowed, cores) is full


def test_an_order_that_changed_for_long_is_noticed() -> None:
    watch: OrderWatch[str] = OrderWatch()
    for _ in range(PATIENCE - 1):
        assert watch.step_over(True, ()) is None
    assert watch.step_over(False, ()) is None  # once in place: it begins anew
    for _ in range(PATIENCE):
        assert not watch.recording
        assert watch.step_over(True, ()) is None
    assert watch.recording
    assert watch.step_over(True, ("b", "a")) is None
    assert watch.step_over(True, ("b", "a")) == ("b", "a")
    assert not watch.recording


def test_an_order_that_never_comes_twice_is_none() -> None:
    watch: OrderWatch[int] = OrderWatch()
    recorded = 0
    for step in range(500):
        recorded += watch.recording
        assert watch.step_over(True, tuple([step, -step] if watch.recording else [])) is None
    assert recorded <= 2 * 500 // PATIENCE


def _search(search: Search, speed: dict[Cuts, float], delay: int) -> int:
    """Steps until it is over; what it wants is in use ``delay`` steps later."""
    now, steps, noise = 0.0, 0, random.Random(1)
    wanted = [search.current] * (delay + 1)
    while True:
        now += speed[wanted[-1 - delay].cuts] * noise.uniform(0.99, 1.01)
        steps += 1
        if search.step_over(wanted[-delay] == search.current, now):
            return steps
        wanted.append(search.current)


def _settings(*cuts: Cuts) -> list[Setting]:
    return [Setting(each, (0,) * 7, 7, 0.5) for each in cuts]


@pytest.mark.parametrize("delay", [1, 3])
def test_a_search_keeps_the_fastest(delay: int) -> None:
    speed = {Cuts(1): 3.0, Cuts(2, 1): 1.0, Cuts(3): 2.0}
    search = Search(_settings(*speed), 10, 2)
    steps = _search(search, speed, delay)
    assert search.current.cuts == Cuts(2, 1)
    assert steps <= 6 * (5 + 3 + delay)
    lines = [json.loads(line) for line in search.report("gradient", "2026-01-02", str).splitlines()]
    assert [(line["theta"], line["last"], line["kept"]) for line in lines] == [
        (1, 0, False),
        (2, 1, True),
        (3, 0, False),
    ]
    assert lines[1]["fastest_ms"] <= lines[1]["step_ms"] <= lines[1]["slowest_ms"]
    assert lines[1]["step_ms"] == pytest.approx(1000, rel=0.02)
    assert lines[1]["predicted_ms"] == 500
    assert lines[1]["strategy"] == str((0,) * 7)


def test_a_search_keeps_the_first_setting_unless_another_saves_a_hundredth() -> None:
    for other, kept in ((0.995, Cuts(1)), (0.9, Cuts(2))):
        search = Search(_settings(Cuts(1), Cuts(2)), 1001, 0)
        _search(search, {Cuts(1): 1.0, Cuts(2): other}, 1)
        assert search.current.cuts == kept


HALF = Cost(1, 0.5, 1.5)
LAYERS = pool(*[MIB] * 100, every=0.005)


def _layouts(link: Link | None) -> list[tuple[Cuts, list[Piece]]]:
    every = [DEFAULT, *(one.cuts for one in candidates([LAYERS], NO_LIMIT, link) if one.cuts != DEFAULT)]
    return [(cuts, pieces([LAYERS], cuts, NO_LIMIT)) for cuts in every]


@pytest.mark.parametrize("link", [Link(20e-6, 1e-10), Link(0.1, 1e-10), None])
def test_sizes_alone_are_tried_from_those_of_now_to_the_best(link: Link | None) -> None:
    tried = worth_trying(_layouts(link), Model([DENSE_COST], [True], link), sizes=True)
    assert tried[0].cuts == DEFAULT
    assert 2 <= len(tried) <= 5
    assert len({one.cuts.theta for one in tried}) >= len(tried) - 1
    assert all(set(one.plan) == {0} for one in tried)
    if link is not None:
        best = candidates([LAYERS], NO_LIMIT, link)[0]
        assert best.cuts in [one.cuts for one in tried]
        by_cuts = {one.cuts: one.predicted for one in tried}
        assert by_cuts[best.cuts] == pytest.approx(best.predicted)


def test_sizes_and_plans_are_rated_together() -> None:
    """Where the wire is slow, the best setting is a half type with small buckets: it is tried, and dense."""
    link = Link(1e-4, 2e-8)
    model = Model([DENSE_COST, HALF, None], [True, True, False], link._replace(copy=5e9))
    layouts = _layouts(link)
    tried = worth_trying(layouts, model, sizes=True)
    every = [setting for cuts, buckets in layouts for setting in model.settings(cuts, buckets)]
    best = min((one for one in every if one.predicted is not None), key=lambda one: one.predicted or 0)
    assert set(best.plan) == {1}
    assert best.cuts != DEFAULT
    assert best in tried
    assert tried[0] == Setting(DEFAULT, (0,) * tried[0].buckets, tried[0].buckets, tried[0].predicted)
    assert [one for one in tried if set(one.plan) == {2}] == [tried[-1]]  # the model does not know it
    assert tried[-1].cuts == DEFAULT
    assert len(tried) == len(set(tried)) == 6


def test_the_overlap_decides_what_a_plan_saves() -> None:
    """A wire that keeps up with backward hides all but the last bucket: only that one's time is left."""
    link = Link(1e-4, 1e-10)
    buckets = [Piece(1 << 20, ready) for ready in (0.1, 0.2, 0.3)]
    model = Model([DENSE_COST, HALF], [True, True], link._replace(copy=1e12))
    dense, half, *_ = model.settings(DEFAULT, buckets)
    assert dense.predicted == pytest.approx(0.3 + 1e-4 + 1e-10 * (1 << 20))
    assert half.predicted == pytest.approx(0.3 + 1e-4 + (0.5e-10 + 1.5e-12) * (1 << 20))
