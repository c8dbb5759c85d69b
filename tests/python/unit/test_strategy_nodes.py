"""Every rank finds the same nodes, or the same error."""

from __future__ import annotations

import pytest

from roundelay.errors import HorovodInternalError
from roundelay.torch.strategies.nodes import Place, nodes_of


def test_nodes_come_in_the_order_of_their_first_ranks() -> None:
    places = {3: Place("a", 2), 0: Place("b", 1), 1: Place("a", 2), 2: Place("c", 1)}
    assert nodes_of(places) == [[0], [1, 3], [2]]


def test_a_rank_whose_node_has_other_ranks_is_named() -> None:
    places = {0: Place("a", 2), 1: Place("a", 2), 2: Place("b", 2)}
    with pytest.raises(HorovodInternalError, match="rank 2 shares its node id with 1 ranks, and its node"):
        nodes_of(places)
