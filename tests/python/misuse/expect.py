"""What a wrong use must raise, how soon, and that the next operation works; the faults of many cases."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import torch

import roundelay.torch as hvd
from in_time import expect_within

SOON_S = 10.0  # less than any clock of ours: what came sooner waited for none


class Faults:
    """Of all cases of a check: one run shows them all, and a rank with a fault stays in step."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    @contextlib.contextmanager
    def of(self, case: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.texts.append(f"{case}: {error}")

    def expect_none(self) -> None:
        assert not self.texts, f"{len(self.texts)} faults on rank {hvd.rank()}\n" + "\n".join(self.texts)


def error_of(call: Callable[[], object], kind: type[Exception]) -> str:
    """The text of the error, of exactly this type, which came soon."""
    begin = time.monotonic()
    error: Exception | None = None
    try:
        call()
    except Exception as raised:
        error = raised
    waited = time.monotonic() - begin
    assert error is not None, f"no {kind.__name__} was raised"
    text = f"{type(error).__name__}: {error}"
    assert type(error) is kind, f"must be a {kind.__name__}, is {text}"
    expect_within(SOON_S, waited, text)
    return str(error)


def expect_parts(text: str, *parts: str) -> None:
    missing = [part for part in parts if part.lower() not in text.lower()]
    assert not missing, f"{missing} not in: {text}"


def expect_the_next_works(name: str | None) -> None:
    result = hvd.allreduce(torch.ones(3), name=name, op=hvd.Sum)
    assert result.tolist() == [hvd.size()] * 3, result
