"""What the model says of the papers: the page is the command's, and the ladder is as it should be."""

from __future__ import annotations

import dataclasses
import functools
import re

import pytest

from benchmarks.papers import constants, gradientflow
from benchmarks.papers.claim import Claim, Kind
from benchmarks.papers.collectives import chunked, factor_table, size_for, size_table
from benchmarks.papers.nodes import gain_table, rate_for_vgg
from benchmarks.report import papers as report
from roundelay import _model


@functools.cache
def _claims() -> list[Claim]:
    return report.all_claims()


def test_each_claim_says_how_it_was_checked() -> None:
    claims = _claims()
    assert {claim.kind for claim in claims} == set(Kind)
    assert all(claim.ours for claim in claims)
    assert all(claim.difference and claim.sensitive for claim in claims if claim.kind is Kind.PREDICTED)


@pytest.mark.parametrize(
    ("paper", "words"),
    [
        ("CUDA-aware MPI allreduce", "gRPC+X"),
        ("BlueConnect", "leading library"),
        ("BlueConnect", "Intel"),
        ("Top-k for public clouds", "Transformer"),
        ("Horovod", "Inception V3"),
        ("Cost model", "perceptrons"),
    ],
)
def test_claims_of_the_abstracts_have_lines(paper: str, words: str) -> None:
    assert any(claim.paper == paper and words in claim.text for claim in _claims())


def test_what_is_reproduced_has_a_number_or_says_what_is_equal() -> None:
    claims = [claim for claim in _claims() if claim.kind is Kind.MEASURED]
    assert all(re.search(r"\d", claim.ours) and claim.difference for claim in claims)


def test_what_is_ten_percent_off_is_among_what_does_not_come_out() -> None:
    _, _, section = report.PART.page.read_text().partition("## What does not come out")
    found = [re.search(r"([+-][\d.]+)%( on 64)?$", claim.difference) for claim in _claims()]
    off = [one[0] for one in found if one and abs(float(one[1])) > 10 and "points" not in one[0]]
    assert len(off) >= 6
    assert [one for one in off if one not in section] == []
    assert f"{rate_for_vgg() / 1e9:.1f} of the card's" in section
    assert f"has {size_for(17) / 1024:.0f} KiB" in section
    assert "61 and 48 Tflop/s" in section
    assert "61 and 48 Tflop/s" in gradientflow._utilisation()


def test_the_page_says_which_constant_is_derived() -> None:
    assert "derived from its published minutes" in report.PART.page.read_text()
    images = 95 * gradientflow.IMAGES / 90 * 512 / 410.2 / 512
    assert images == pytest.approx(constants.CLUSTER_V.samples_per_second, rel=1e-3)
    images = 90 * gradientflow.IMAGES / (7.3 * 60) / 434.1
    assert images == pytest.approx(constants.CLUSTER_V_RESNET.samples_per_second, rel=1e-3)


@pytest.mark.parametrize(("factors", "milliseconds"), [([48], 19.4), ([6, 8], 17.6), ([3, 2, 2, 2, 2], 17.0)])
def test_all_levels_between_nodes_share_the_cards(factors: list[int], milliseconds: float) -> None:
    cluster = _model.split(constants.MINSKY.cluster(), 1, factors)
    assert 1e3 * chunked(cluster, 1e8) == pytest.approx(milliseconds, rel=0.005)


def test_a_ring_catches_up_with_the_size_of_the_message() -> None:
    for column in zip(*size_table(), strict=True):
        if column[0] != "256 B":
            gains = [float(one) for one in column]
            assert gains == sorted(gains, reverse=True)


def test_each_step_of_the_ladder_helps_alexnet_and_csc_does_not_help_resnet() -> None:
    ladder = gradientflow.ladder()
    alexnet = [float(line[1]) for line in ladder]
    resnet = [float(line[2]) for line in ladder]
    assert alexnet == sorted(alexnet)
    assert alexnet[-1] > 1.3 * alexnet[-2]
    assert resnet[-1] < 1.02 * resnet[-2]
    assert resnet[1] > 5 * resnet[0]  # fusion is most of it


def test_factors_help_small_messages_and_chunks_large_ones() -> None:
    small, *_, large = ([float(value) for value in line[1:]] for line in factor_table())
    ring, two, three, many, chunked = small
    assert ring > two > three > many
    ring, two, three, many, chunked = large
    assert chunked < ring < many < three < two


def test_top_k_gains_less_where_there_is_more_to_compute() -> None:
    gains = [float(line[3].rstrip(" %")) for line in gain_table()]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] < 10 < gains[0]


def test_a_constant_moves_the_prediction() -> None:
    slower = dataclasses.replace(constants.CLUSTER_V, bandwidth=constants.CLUSTER_V.bandwidth / 2)
    assert gradientflow._minutes(slower, "alexnet", 95) > gradientflow._minutes(
        constants.CLUSTER_V, "alexnet", 95
    )
