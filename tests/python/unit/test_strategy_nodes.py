"""Every rank finds the same nodes, or the same error."""

from __future__ import annotations

import pytest

from roundelay.errors import HorovodInternalError
from roundelay.torch._internal.nodes import RankNode, nodes_of


def test_nodes_come_in_the_order_of_their_first_ranks() -> None:
    found = {3: RankNode("a", 2), 0: RankNode("b", 1), 1: RankNode("a", 2), 2: RankNode("c", 1)}
    assert nodes_of(found) == [[0], [1, 3], [2]]


def test_a_rank_whose_node_has_other_ranks_is_named() -> None:
    found = {0: RankNode("a", 2), 1: RankNode("a", 2), 2: RankNode("b", 2)}
    with pytest.raises(HorovodInternalError, match="rank 2 shares its node id with 1 ranks, and its node"):
        nodes_of(found)
