"""The row of top-k, of numbers that are known."""

from __future__ import annotations

from benchmarks.contenders import GRADIENTFLOW
from benchmarks.gradientflow.result import Row, Wire
from benchmarks.table import topk
from benchmarks.table.result import Estimate


def test_results_of_top_k() -> None:
    steps = {
        "alone": 0.07,
        "topk-1": 0.09,
        "csc-10": 0.14,
        "ddp": 1.8,
        "powersgd-1": 0.18,
        "powersgd-4": 0.27,
    }
    own = tuple(
        Row(GRADIENTFLOW[name].name, Estimate(step), None, None, 0.0, 0.0, 0.5)
        for name, step in steps.items()
    )
    found = {"wires": [Wire(100, 36, 12, 2, own).as_json()]}
    first, second = topk.results(found)
    assert (first.work, second.work) == (topk.TOP_K, topk.CSC)
    assert (first.own, first.floor) == (Estimate(0.09), Estimate(0.07))
    ratios = {peer.name: round(peer.ratio.value, 9) for peer in first.peers if peer.ratio is not None}
    assert ratios == {"DDP": 20.0, "DDP, PowerSGD rank 1": 2.0, "DDP, PowerSGD rank 4": 3.0}
    assert second.over_floor == Estimate(0.14 / 0.07)
    assert (first.kept, first.of) == (10, 12)
    (absent,) = topk.results({"missing": "no namespaces here"})
    assert absent.why == "no namespaces here"
