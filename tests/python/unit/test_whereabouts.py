"""What a late rank says of the place where its Python is."""

from __future__ import annotations

import re

from torch.utils import _pytree as tree

from roundelay._internal import whereabouts


def test_calls_of_the_libraries_are_left_out_but_for_the_innermost() -> None:
    (said,) = tree.tree_map(lambda _: whereabouts.of_main_thread(), [0])
    expected = (
        r"Python is in of_main_thread \(whereabouts\.py:\d+\), "
        r"called from <lambda> \(test_whereabouts\.py:\d+\), called from test\w+ \(test_whereabouts\.py:\d+\)"
    )
    assert re.match(expected, said), said
