"""Makes strategies of their texts, as ROUNDELAY_STRATEGY and ``--strategy`` have them: ``dense:wire=bf16``.

roundelay.torch.strategies registers its classes here, so that DistributedOptimizer imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from roundelay._internal.spelling import reading
from roundelay._internal.spelling.table import CHOICES
from roundelay.torch._internal.strategy.strategy import Strategy

_classes: dict[str, Callable[..., Strategy]] = {}
_of_technique: Callable[[str], Strategy]


def register(classes: Mapping[str, Callable[..., Strategy]], of_technique: Callable[[str], Strategy]) -> None:
    """Makes the classes of these names known, which take a text's values as keywords.

    of_technique: makes the strategy that gives every bucket one technique, of the technique's text.
    """
    global _of_technique  # noqa: PLW0603
    _classes.update(classes)
    _of_technique = of_technique


def known() -> dict[str, str]:
    """Returns the descriptions of all strategies, by the text that begins theirs."""
    return dict(CHOICES)


def parse(text: str) -> Strategy:
    """Returns the strategy that the text means.

    One that begins with a library's file runs the library's code in this process. ValueError: it has another
    form, names no known strategy, has a wrong parameter, or a library that cannot be opened.
    """
    found = reading.read(text)
    if found.name not in _classes:
        return _of_technique(text)
    found.check_complete()
    return _classes[found.name](**found.values)
