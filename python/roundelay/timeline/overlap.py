"""The one definition of *hidden* and *exposed* communication (docs/timeline.md).

Communication is *under way* on a rank while an operation is between its submission and its end. In that time
it is *exposed* while the program waits for communication, and *hidden* while the program computes.
"""

from __future__ import annotations


def hidden_share(under_way: float, exposed: float) -> float | None:
    """Returns the hidden part of the time under way, 0 to 1; None if there is none. Any unit of time."""
    return 1.0 - exposed / under_way if under_way > 0 else None
