"""The kinds of values that parameters of strategies take: each reads a value from text, and writes it.

What reads a text returns the argument of the strategy's class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from roundelay._internal.spelling.form import cut_list, is_list, shortest
from roundelay._internal.spelling.numbers import int_from, number_from, whole_number


class Kind(ABC):
    """A kind of values."""

    @abstractmethod
    def read(self, key: str, text: str) -> Any:
        """Returns the value that the text means. ValueError: it means none; the error says what there is."""

    def write(self, value: Any) -> str:
        """Returns the form that read() reads."""
        return shortest(value)


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number in a range."""

    least: int = 0
    most: int | None = None

    def checked(self, key: str, value: Any) -> int:
        """Returns the value. ValueError: it is no such number."""
        return whole_number(key, value, self.least, self.most)

    def read(self, key: str, text: str) -> int:
        """Returns the number."""
        return self.checked(key, int_from(key, text))


@dataclass(frozen=True)
class Share(Kind):
    """A part, above 0 and at most 1."""

    def checked(self, key: str, value: Any) -> float:
        """Returns the value. ValueError: it is no part."""
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1:
            raise ValueError(f"{key} is {value!r}, but must be above 0 and at most 1")
        return float(value)

    def read(self, key: str, text: str) -> float:
        """Returns the part."""
        return self.checked(key, number_from(key, text))


@dataclass(frozen=True)
class Word(Kind):
    """One of a few words."""

    words: tuple[str, ...]

    def checked(self, key: str, value: Any) -> str:
        """Returns the value. ValueError: it is none of the words."""
        if value not in self.words:
            raise ValueError(f"{key} is {value!r}, but must be one of {', '.join(self.words)}")
        return str(value)

    def read(self, key: str, text: str) -> str:
        """Returns the word."""
        return self.checked(key, text)


@dataclass(frozen=True)
class NoMomentum(Kind):
    """``none``: the momentum of power_sgd."""

    def checked(self, key: str, value: Any) -> str:
        """Returns the word. ValueError: the value is another one."""
        if value not in (None, "none"):
            raise ValueError(
                f"{key} is {value!r}, but power_sgd takes none: it sends a part of every element, and the "
                "optimizer's own momentum works on that"
            )
        return "none"

    def read(self, key: str, text: str) -> str:
        """Returns the word."""
        return self.checked(key, text)


WIRE = Word(("none", "fp16", "bf16"))


@dataclass(frozen=True)
class Algorithm(Kind):
    """The name of an algorithm. names: returns those that there are."""

    names: Callable[[], Sequence[str]]

    def read(self, key: str, text: str) -> str:
        """Returns the name."""
        return Word(tuple(self.names())).checked(key, text)


@dataclass(frozen=True)
class Bits(Kind):
    """One of two numbers of bits."""

    numbers: tuple[int, int]

    def checked(self, key: str, value: Any) -> int:
        """Returns the value. ValueError: it is none of the two."""
        if value not in self.numbers:
            raise ValueError(f"{key} is {value!r}, but must be {self.numbers[0]} or {self.numbers[1]}")
        return int(value)

    def read(self, key: str, text: str) -> int:
        """Returns the number."""
        return self.checked(key, int_from(key, text))


@dataclass(frozen=True)
class Flag(Kind):
    """1 or 0 in text."""

    def checked(self, key: str, value: Any) -> bool:
        """Returns the value. ValueError: it is neither True nor False."""
        if not isinstance(value, int) or value not in (0, 1):
            raise ValueError(f"{key} is {value!r}, but must be True or False")
        return bool(value)

    def read(self, key: str, text: str) -> bool:
        """Returns whether it is 1."""
        if text not in ("0", "1"):
            raise ValueError(f"{key} is {text!r}, but must be 1 or 0")
        return text == "1"


@dataclass(frozen=True)
class Names(Kind):
    """Names of parameters, with "+" between them."""

    def checked(self, key: str, names: Any) -> tuple[str, ...]:
        """Returns the names, each once. ValueError: they are no names, or have marks that texts need."""
        if not isinstance(names, Iterable) or isinstance(names, str):
            raise ValueError(f"{key} is {names!r}, but must be a list of names")
        found = tuple(dict.fromkeys(names))
        for name in found:
            if not isinstance(name, str) or not name or any(mark in name for mark in ":,=+"):
                raise ValueError(f"{key} has {name!r}, but must have names without any of : , = +")
            if name.count("[") != name.count("]"):
                raise ValueError(f"{key} has {name!r}, but must have names with a ] for each [")
        return found

    def read(self, key: str, text: str) -> tuple[str, ...]:
        """Returns the names."""
        return self.checked(key, text.split("+"))


@dataclass(frozen=True)
class Factors(Kind):
    """Whole numbers with "+" between them."""

    def read(self, key: str, text: str) -> tuple[int, ...]:
        """Returns the numbers."""
        return tuple(whole_number(key, int_from(key, part), 1) for part in text.split("+"))

    def write(self, value: Any) -> str:
        """Returns the numbers' text."""
        return "+".join(map(str, value))


@dataclass(frozen=True)
class WarmUp(Kind):
    """A number of first steps, or steps with the share that is sent before each: ``100/1+200/0.25``."""

    share: str  # the share's name in messages

    def checked(self, key: str, warmup: Any) -> tuple[tuple[int, float], ...]:
        """Returns (step, share) pairs. ValueError: it is no warm-up, or its steps do not ascend."""
        if isinstance(warmup, int) and not isinstance(warmup, bool):
            return ((warmup, 1.0),) if whole_number(key, warmup, 0) else ()
        if isinstance(warmup, str) or not isinstance(warmup, Sequence):
            raise ValueError(
                f"{key} is {warmup!r}, but must be a number of steps or a list of (step, {self.share})"
            )
        pairs = []
        for pair in warmup:
            if not isinstance(pair, Sequence) or len(pair) != 2:
                raise ValueError(f"{key} has {pair!r}, but must be a list of (step, {self.share})")
            step = whole_number(f"a step of {key}", pair[0], 1)
            pairs.append((step, Share().checked(self.share, pair[1])))
        if any(later <= earlier for (earlier, _), (later, _) in pairwise(pairs)):
            raise ValueError(f"{key} is {warmup!r}, but its steps must ascend")
        return tuple(pairs)

    def read(self, key: str, text: str) -> tuple[tuple[int, float], ...]:
        """Returns the pairs."""
        pairs = [pair.partition("/") for pair in text.split("+")]
        if len(pairs) == 1 and not pairs[0][1]:
            return self.checked(key, int_from(key, text))
        words = (f"a step of {key}", f"a {self.share} of {key}")
        return self.checked(
            key, [(int_from(words[0], step), number_from(words[1], part)) for step, _, part in pairs]
        )

    def write(self, value: Any) -> str:
        """Returns the pairs' text."""
        return "+".join(f"{step}/{shortest(share)}" for step, share in value)


@dataclass(frozen=True)
class Period(Kind):
    """``8``; or ``0/1+1000/8``: period 1 from step 0 on, period 8 from step 1000 on."""

    most: int

    def checked(self, key: str, value: Any) -> int:
        """Returns the number of steps of a period. ValueError: it is none."""
        return whole_number(key, value, 1, self.most)

    def pairs(self, key: str, given: Any) -> tuple[tuple[int, int], ...]:
        """Returns pairs of a step and the period from it on. ValueError: they are wrong."""
        if isinstance(given, int):
            return ((0, self.checked(key, given)),)
        if isinstance(given, str) or not isinstance(given, Sequence) or not given:
            raise ValueError(
                f"{key} is {given!r}, but must be a number of steps, a list of (step, {key}) or a function "
                "of the step"
            )
        pairs = []
        for pair in given:
            if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
                raise ValueError(f"{key} has {pair!r}, but must be a list of (step, {key})")
            pairs.append((whole_number(f"a step of {key}", pair[0], 0), self.checked(key, pair[1])))
        if pairs[0][0] != 0 or any(later <= earlier for (earlier, _), (later, _) in pairwise(pairs)):
            raise ValueError(f"{key} is {given!r}, but its steps must begin with 0 and ascend")
        return tuple(pairs)

    def read(self, key: str, text: str) -> tuple[tuple[int, int], ...]:
        """Returns the pairs."""
        pairs = [pair.partition("/") for pair in text.split("+")]
        if len(pairs) == 1 and not pairs[0][1]:
            return self.pairs(key, int_from(key, text))
        words = (f"a step of {key}", f"a {key}")
        return self.pairs(key, [(int_from(words[0], a), int_from(words[1], b)) for a, _, b in pairs])

    def write(self, value: Any) -> str:
        """Returns the text of pairs."""
        if len(value) == 1:
            return str(value[0][1])
        return "+".join(f"{step}/{period}" for step, period in value)


@dataclass(frozen=True)
class Strategies(Kind):
    """A list of strategies in brackets, as `roundelay plan --strategies` has it: ``[dense,csc:keep=0.1]``.

    Names may have "+" between them instead, without brackets.
    """

    def read(self, key: str, text: str) -> list[str]:
        """Returns the strategies' texts."""
        if not text.startswith("["):
            return text.split("+")
        found = cut_list(text[1:-1])
        if not is_list(text) or not found:
            raise ValueError(f"{key} is {text!r}, but must be a list such as [dense,csc:keep=0.1]")
        return found

    def write(self, value: Any) -> str:
        """Returns the list's text."""
        return f"[{','.join(value)}]"
