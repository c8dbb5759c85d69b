"""Algorithms and plans over levels are rated by the model's formulas, beside the job's own way."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from roundelay import _core, _model
from roundelay.torch import strategies
from roundelay.torch._internal.strategy.bucket import Bucket, Shape
from roundelay.torch._internal.tuning.gate import DENSE_COST, Cost
from roundelay.torch._internal.tuning.search import Model, worth_trying
from roundelay.torch._internal.tuning.ways import OWN, Stage, Way, Ways
from roundelay.torch.strategies import auto as auto_module
from roundelay.torch.strategies._auto.candidates import candidate, plan_candidates
from roundelay.tuning.buckets import DEFAULT, Link, Piece

ALPHA, W = 1e-4, 1e8
NODE = (1, 1e-6, 6e9)


def of_nodes(count: int, alpha: float = ALPHA, algorithm: str = "pairwise") -> Ways:
    """Nodes of one rank each."""
    return Ways([NODE, (count, alpha, W)], [[(count, 0, 1)]], algorithm)


def in_racks(uplink: float, *plans: list[Stage]) -> Ways:
    """Two racks of two nodes of two ranks. uplink: bytes a second out of a rack."""
    return Ways([(2, 1e-6, 6e9), (2, ALPHA, W), (2, ALPHA, uplink)], plans, "pairwise")


@pytest.mark.parametrize(
    ("algorithm", "messages", "size"),  # for 8 ranks: those of docs/fabrics.md, in units of S
    [
        ("direct", 1, 7),
        ("pairwise", 2, 7 / 4),
        ("ring", 14, 7 / 4),
        ("recursive_doubling", 3, 3),
        ("halving_doubling", 6, 7 / 4),
        ("binomial_tree", 6, 6),
    ],
)
@pytest.mark.parametrize("own", [("pairwise", 2, 7 / 4), ("binomial_tree", 6, 6)])
def test_an_algorithm_costs_its_messages_and_bytes_more(
    algorithm: str, messages: int, size: float, own: tuple[str, int, float]
) -> None:
    found = of_nodes(8, algorithm=own[0]).cost(Way(algorithm))
    assert (found.calls, found.passes) == (1, 0)
    assert found.latency == pytest.approx((messages - own[1]) * ALPHA, abs=1e-9)
    assert found.ratio == pytest.approx(size / own[2])


def test_the_own_way_and_shared_memory_are_dense() -> None:
    assert of_nodes(8).cost(Way("pairwise")) == DENSE_COST
    assert of_nodes(8).cost(Way(OWN)) == DENSE_COST
    one_node = Ways([(4, 1e-6, 6e9)], [[(4, 0, 0)]], "")
    assert one_node.cost(Way("ring")) == DENSE_COST


def test_a_plan_is_rated_by_the_busiest_link() -> None:
    nodes = [(2, 0, 0), (4, 1, 2)]
    racks = [(2, 0, 0), (2, 1, 1), (2, 2, 2)]
    narrow = in_racks(W / 4, nodes, racks)
    # The uplink carries 2 S by a pairwise exchange of all nodes, 1.5 S by a ring of them, S by three levels.
    assert narrow.cost(Way(OWN, (2, 2, 2))).ratio == pytest.approx(0.5, rel=0.15)
    assert narrow.cost(Way("ring", (2, 4))).ratio == pytest.approx(0.75, rel=0.1)
    assert narrow.cost(Way(OWN, (2, 4))) == DENSE_COST
    wide = in_racks(100 * W, nodes, racks)
    assert wide.cost(Way(OWN, (2, 2, 2))).ratio == pytest.approx(1, rel=0.1)  # 1.5 S leave a node in both


def tried(ways: Ways, *names: str) -> set[str]:
    """What a search tries for one large bucket."""
    named = [candidate(name) for name in ("dense", *names)]
    costs = [one.cost(ways) for one in named]
    link = Link(1e-3, 1 / W)
    found = worth_trying([(DEFAULT, [Piece(1 << 22, 0.0)])], Model(costs, [True] * len(named), link))
    return {named[setting.plan[0]].text for setting in found}


def test_what_the_links_make_slow_is_not_tried() -> None:
    names = ("ring", "recursive_doubling", "halving_doubling")
    few_messages, ring, halving = (
        candidate(name).text for name in ("recursive_doubling", "ring", "halving_doubling")
    )
    assert tried(of_nodes(8, alpha=1e-2), *names) == {"dense", few_messages, halving}
    assert tried(of_nodes(8, alpha=1e-7), *names) == {"dense", ring, halving}
    half = {"dense", "dense:wire=bf16"}
    assert tried(of_nodes(8), "pairwise", "bf16") == half  # pairwise is what dense is


def test_costs_of_ways_without_known_links() -> None:
    assert candidate("ring").cost(None) is None
    assert candidate("bf16").cost(None) == Cost(1, 0.5, 1.5)


def test_candidates_of_plans() -> None:
    ways = in_racks(W, [(2, 0, 0), (4, 1, 2)], [(2, 0, 0), (2, 1, 1), (2, 2, 2)])
    (found,) = plan_candidates(ways)
    assert found.text == "allreduce:factors=2+2+2"
    assert found.spec is not None
    assert found.spec.core == "allreduce:algorithm=auto,factors=2+2+2"
    assert found.cost(ways) == ways.cost(Way(OWN, (2, 2, 2)))


@pytest.mark.parametrize("deterministic", [True, False])
def test_plans_are_refused_where_sums_must_not_change(
    deterministic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_core, "config", lambda: SimpleNamespace(deterministic=deterministic))
    world = SimpleNamespace()
    one, two = [(2, 0, 0), (4, 1, 2)], [(2, 0, 0), (2, 1, 1), (2, 2, 2)]
    monkeypatch.setattr(auto_module, "ways_of", lambda _: in_racks(W, one))
    strategies.Auto().accept_set(world)  # type: ignore[arg-type]
    monkeypatch.setattr(auto_module, "ways_of", lambda _: in_racks(W, one, two))
    if not deterministic:
        strategies.Auto().accept_set(world)  # type: ignore[arg-type]
        return
    with pytest.raises(ValueError, match="the plans of ROUNDELAY_FACTORS .* leave one plan"):
        strategies.Auto().accept_set(world)  # type: ignore[arg-type]


NODES_AND_RACKS = [(4, 3.3e-6, 11.25e9), (6, 3.3e-5, 1.25e9), (3, 6.6e-5, 0.625e9)]


@pytest.mark.parametrize(
    ("plan", "algorithm", "size", "seconds"),  # what the gate predicted while it had a formula of its own
    [
        ([(4, 0, 0), (6, 1, 1), (3, 2, 2)], "pairwise", 26214403, 0.06050229450196079),
        ([(4, 0, 0), (18, 1, 2)], "pairwise", 26214403, 0.33691000914666663),
        ([(4, 0, 0), (2, 1, 1), (3, 1, 1), (3, 2, 2)], "pairwise", 26214403, 0.06056829450196079),
        ([(72, 0, 2)], "pairwise", 26214403, 1.3423094336),
        ([(4, 0, 0), (6, 1, 1), (3, 2, 2)], "ring", 262144, 0.0012803184),
        ([(4, 0, 0), (18, 1, 2)], "ring", 262144, 0.003077809955555556),
        ([(4, 0, 0), (2, 1, 1), (3, 1, 1), (3, 2, 2)], "ring", 262144, 0.0013463184000000001),
        ([(72, 0, 2)], "ring", 262144, 0.010199209955555556),
        ([(4, 0, 0), (6, 1, 1), (3, 2, 2)], "halving_doubling", 16777216, 0.08570389514666668),
        ([(4, 0, 0), (18, 1, 2)], "halving_doubling", 16777216, 0.4429950353254902),
        ([(4, 0, 0), (2, 1, 1), (3, 1, 1), (3, 2, 2)], "halving_doubling", 16777216, 0.08576989514666669),
        ([(72, 0, 2)], "halving_doubling", 16777216, 1.7294971053971828),
        ([(4, 0, 0), (6, 1, 1), (3, 2, 2)], "binomial_tree", 4097, 0.00036882973333333334),
        ([(4, 0, 0), (18, 1, 2)], "binomial_tree", 4097, 0.0009447782666666668),
        ([(4, 0, 0), (2, 1, 1), (3, 1, 1), (3, 2, 2)], "binomial_tree", 4097, 0.00043482973333333337),
        ([(72, 0, 2)], "binomial_tree", 4097, 0.0024130459943661974),
        ([(4, 0, 0), (6, 1, 1), (3, 2, 2)], "pipelined_tree", 16777216, 0.0842088499047619),
        ([(4, 0, 0), (18, 1, 2)], "pipelined_tree", 16777216, 0.3539104800313726),
        ([(4, 0, 0), (2, 1, 1), (3, 1, 1), (3, 2, 2)], "pipelined_tree", 16777216, 0.0842748499047619),
        ([(72, 0, 2)], "pipelined_tree", 16777216, 1.3244434527549296),
    ],
)
def test_predictions_stay_the_same(plan: list[Stage], algorithm: str, size: int, seconds: float) -> None:
    found = _model.seconds_of_way(NODES_AND_RACKS, plan, algorithm, size)
    assert found == pytest.approx(seconds, rel=1e-14)  # other machines may fuse operations


@pytest.mark.parametrize("stage", [(0, 0, 0), (4, 1, 0), (3, 2, 3)])
def test_a_stage_outside_the_levels_is_refused(stage: Stage) -> None:
    with pytest.raises(ValueError, match="a stage does not fit the levels"):
        _model.seconds_of_way(NODES_AND_RACKS, [stage], "ring", 1)


@pytest.mark.parametrize(
    ("text", "ratio"),
    [
        ("topk:density=0.01", 4 * 0.01),  # 3 messages with pairs of 8 bytes, beside 2 * 3 / 4 elements of 4
        ("topk:density=0.01,wire=bf16,index_bits=16", 2 * 0.01),
        ("quantised", 65 / 256),
    ],
)
@pytest.mark.parametrize("ranks", [1, 4])
def test_lossy_strategies_are_rated_by_the_bytes_between_nodes(text: str, ratio: float, ranks: int) -> None:
    ways = Ways([(ranks, 1e-6, 6e12), (4, ALPHA, W)], [[(4, 1, 1)]], "pairwise")
    cost = candidate(text).cost(ways)
    assert cost is not None
    assert cost.ratio == pytest.approx(ratio, rel=0.01)
    assert cost.passes > 0
    assert candidate(text).cost(Ways([(4, 1e-6, 6e9)], [[(4, 0, 0)]], "")) is None
    assert candidate(text).cost(None) is None


def test_low_rank_factors_are_rated_by_the_matrices_of_the_buckets() -> None:
    one = candidate("power_sgd:rank=2,dense_below=0")
    ways = of_nodes(4)
    assert one.cost(ways) is None  # nobody knows the matrices yet
    assert one.lossy is not None
    shapes = (Shape((100, 50), (50, 1)), Shape((500,), (1,)))
    ranges = (range(5000), range(5000, 5500))
    one.lossy.use_buckets(
        [Bucket(0, "b", 22000, torch.float32, torch.device("cpu"), ("w", "b"), 0, ranges, shapes)]
    )
    cost = one.cost(ways)
    assert cost is not None
    assert cost.ratio == pytest.approx((2 * (100 + 50) + 500) / 5500)
    assert cost.latency == pytest.approx(2 * ALPHA)  # two allreduces of two messages, in place of one
