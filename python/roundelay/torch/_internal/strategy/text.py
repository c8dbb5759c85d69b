"""Strategies written as text, as ROUNDELAY_STRATEGY and ``--strategy`` have them: ``dense:wire=bf16``.

roundelay.torch.strategies registers its own here, so that DistributedOptimizer imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from roundelay import _core
from roundelay.torch._internal.strategy.spec import Spec
from roundelay.torch._internal.strategy.strategy import Strategy


class Named(NamedTuple):
    """A strategy that has a name."""

    make: Callable[..., Strategy]  # takes the parameters' texts as keywords
    keys: tuple[str, ...]
    description: str


_named: dict[str, Named] = {}
_of_technique: Callable[[Spec, str | None], Strategy]


def register(named: Mapping[str, Named], of_technique: Callable[[Spec, str | None], Strategy]) -> None:
    """Makes these strategies known by their names.

    of_technique: makes the strategy that gives every bucket one technique, of the technique and a wire.
    """
    global _of_technique  # noqa: PLW0603
    _named.update(named)
    _of_technique = of_technique


def known() -> dict[str, str]:
    """Returns the descriptions of all strategies, by name; each technique of the core is one.

    A strategy hides the technique of its name.
    """
    described = {name: each.description for name, each in _named.items()}
    return {**described, **{name: text for name, text in _techniques().items() if name not in described}}


def parse(text: str) -> Strategy:
    """Returns the strategy that the text means.

    One that begins with a library's file runs the library's code in this process. ValueError: it has another
    form, names no known strategy, has a wrong parameter, or a library that cannot be opened.
    """
    spec = Spec.parse(text)
    parameters = dict(spec.parameters)
    entry = _named.get(spec.name)
    if entry is not None:
        unknown = next((key for key in parameters if key not in entry.keys), None)
        if unknown is not None:
            raise ValueError(f"strategy {spec.name!r} has no {unknown!r}, only {', '.join(entry.keys)}")
        return entry.make(**parameters)
    if not spec.of_library and spec.name not in _techniques():
        raise ValueError(f"there is no strategy {spec.name!r}; known are {', '.join(known())}")
    wire = parameters.pop("wire", None)
    return _of_technique(Spec(spec.name, **parameters), wire)


def _techniques() -> dict[str, str]:
    """Returns the descriptions of the core's techniques, by name."""
    return dict(_core.techniques())
