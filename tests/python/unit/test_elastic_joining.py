"""How often a process tries to join. That others leave or are lost is no failure of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from roundelay import _core
from roundelay.run.agent.member import Dismissed, Member, NoPlaceError, Place
from roundelay.torch._internal import generations


class _Launcher:
    """Gives places in one generation after the other, and says of some that they are over."""

    def __init__(self, lost: set[int], left: set[int]) -> None:
        self.lost: set[int] = set()  # is told of with the next place
        self.over = (0, "")
        self.on_over: Callable[[int], None] = print
        self.generation = 0
        self._lost, self._left = lost, left

    def place(self, *, has_state: bool, program: dict[str, str]) -> Place:
        assert not has_state
        assert program["the list of arguments"] is not None
        self.lost |= {generation for generation in self._lost if generation <= self.generation}
        self.generation += 1
        return Place(self.generation, 0, 1, "", 0, [], [], None)

    def join(self, _path: object, _store: object, generation: int) -> None:
        assert generation == self.generation
        if generation in self._left:
            self.over = (generation, "another one asks anew")
        if generation < 8:
            raise RuntimeError(f"generation {generation}")


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations._Training, "has_had_place", False)
    monkeypatch.setattr(generations._Training, "has_state", False)
    monkeypatch.setattr(_core, "log_warning", lambda _text: None)


def _join(launcher: Any) -> None:
    generations.join_next(cast(Member, launcher), launcher.join)


def test_a_process_that_fails_by_itself_gives_up() -> None:
    launcher = _Launcher(lost={1}, left={3})
    with pytest.raises(RuntimeError, match="generation 5"):  # after 2 and 4
        _join(launcher)
    assert launcher.generation == 6  # it waits for a place once more, to hear of losses


def test_losses_and_what_others_do_are_no_failures() -> None:
    launcher = _Launcher(lost={1, 3, 5, 6}, left={2, 4})
    _join(launcher)
    assert launcher.generation == 8
    assert launcher.on_over is _core.give_up_generation


@pytest.mark.parametrize(
    ("is_new", "dismissed", "kind"),
    [
        (True, True, Dismissed),
        (False, True, Dismissed),
        (True, False, SystemExit),
        (False, False, RuntimeError),
    ],
)
def test_who_has_no_place_ends(is_new: bool, dismissed: bool, kind: type[BaseException]) -> None:
    launcher = _Launcher(set(), set())
    generations._Training.has_had_place = not is_new

    def place(**_asked: object) -> Place:
        raise NoPlaceError("torch is 1 here", dismissed=dismissed)

    launcher.place = place  # type: ignore[method-assign]
    with pytest.raises(kind) as raised:
        _join(launcher)
    if kind is SystemExit:
        assert str(raised.value) == "roundelay: this worker cannot join the job: torch is 1 here"
