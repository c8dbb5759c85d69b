"""What the model says of the papers: the page is the command's, and the ladder is as it should be."""

from __future__ import annotations

import dataclasses

from benchmarks.papers import constants, document, gradientflow
from benchmarks.papers.claim import Kind
from benchmarks.papers.collectives import factor_table
from benchmarks.papers.nodes import gain_table


def test_the_page_has_the_tables_of_the_command() -> None:
    assert document.tables() in document.PAGE.read_text()


def test_each_claim_says_how_it_was_checked() -> None:
    claims = document.all_claims()
    assert {claim.kind for claim in claims} == set(Kind)
    assert all(claim.ours for claim in claims)
    assert all(claim.difference and claim.sensitive for claim in claims if claim.kind is Kind.PREDICTED)


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
