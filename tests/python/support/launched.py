"""Checks the results that launched_script.py writes on all ranks of a job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import launched_script

SCRIPT = launched_script.__file__


def results(folder: Path) -> list[dict[str, Any]]:
    """Returns the ranks' results in the order of ranks."""
    found = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    return sorted(found, key=lambda one: int(one["rank"]))


def check(said: Sequence[dict[str, Any]], slots: Sequence[int]) -> None:
    """Checks that host i has `slots[i]` ranks, in order, with the weights that a single process gets."""
    expected = launched_script.train(0, 1, together=False)
    assert len(set(expected)) > 5, "nothing was learnt"
    places = [(cross, local) for cross, count in enumerate(slots) for local in range(count)]
    assert [one["rank"] for one in said] == list(range(len(places)))
    for one, (node, local) in zip(said, places, strict=True):
        assert one["weights"] == expected
        assert one["size"] == len(places)
        assert (one["local_rank"], one["local_size"]) == (local, slots[node])
        # cross_rank counts the ranks with this local_rank.
        peers = [other for other, count in enumerate(slots) if count > local]
        assert (one["cross_rank"], one["cross_size"]) == (peers.index(node), len(peers))
