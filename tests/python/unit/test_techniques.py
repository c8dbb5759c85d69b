"""How ranks change techniques and layouts: nothing is lost, nothing is sent twice, all switch at once.

Several ranks run in this thread. Their buckets are doubles of the core's that keep a part of each gradient
back; a round merges what the ranks say, as their agreement does.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

import technique_libraries
from roundelay.torch._internal.gradients.pool import PoolBucket
from roundelay.torch._internal.gradients.round_values import (
    LONGEST_PROPOSAL,
    PoolValues,
    Round,
    TechniqueValues,
)
from roundelay.torch._internal.operations import Max, Sum
from roundelay.torch._internal.optimizer.technique_states import TechniqueStates
from roundelay.torch._internal.optimizer.techniques import Techniques
from roundelay.torch.process_sets import ProcessSet
from roundelay.torch.strategies import Bucket as View
from roundelay.torch.strategies import Spec, Strategy
from technique_libraries import canonical


@dataclass
class Core:
    """A bucket of the core: "cyclic" sends half of what it has, the others all."""

    name: str
    technique: str | None = None
    bytes: int = 4
    kept: int = 0
    run: int = 0
    unflushed: bool = False
    flushes: bool = False
    sent_by: list[str] = field(default_factory=list)

    @property
    def state(self) -> torch.Tensor | None:
        return torch.tensor([self.kept]) if (self.technique or "").startswith("cyclic") else None

    def set_technique(self, text: str | None) -> None:
        if text != self.technique:
            assert not self.unflushed, "what is kept back would be lost"
            assert self.kept == 0
            self.technique = text

    def flush_next(self) -> None:
        self.flushes = self.technique is not None

    def reduce(self, gradient: int, applies: bool) -> int:
        """Returns what this rank sends."""
        flushes, self.flushes = self.flushes, False
        if self.state is None or not applies:
            return gradient
        total, self.kept = self.kept + gradient, 0
        self.unflushed = not flushes
        self.run = 0 if flushes else self.run + 1
        self.sent_by.append("flush" if flushes else str(self.technique))
        if not flushes:
            self.kept = total // 2
        return total - self.kept


class Choosing(Strategy):
    """Takes what ``choice`` says of a bucket and a step; proposes what ``wish`` has."""

    def __init__(self) -> None:
        self.choice: Any = lambda bucket, step: None
        self.wish: bytes | None = None
        self.heard: list[bytes] = []
        self.moves = 0

    def technique(self, bucket: View, step: int) -> Spec | None:
        return cast("Spec | None", self.choice(bucket, step))

    def propose(self) -> bytes | None:
        return self.wish

    def agreed(self, proposal: bytes) -> None:
        self.heard.append(proposal)

    def layout_will_change(self) -> None:
        self.moves += 1


class Rank:
    """One rank's techniques and buckets."""

    def __init__(self, rank: int, size: int, op: int = Sum) -> None:
        group = SimpleNamespace(rank=lambda: rank, size=lambda: size)
        self.strategy = Choosing()
        self.techniques = Techniques(self.strategy, op, cast(ProcessSet, group), "gradient", {})
        self.cores: list[Core] = []
        self.came = self.sent = 0

    def use(self, number: int) -> None:
        assert all(core.kept == 0 for core in self.cores), "the layout changed before all was flushed"
        self.cores = [Core(f"gradient.bucket{n}(a)") for n in range(number)]
        pool = SimpleNamespace(dtype=torch.float32, device=torch.device("cpu"), index=0)
        buckets = [
            SimpleNamespace(
                core=core,
                pool=pool,
                members=[],
                ranges=lambda: (),
            )
            for n, core in enumerate(self.cores)
        ]
        self.techniques.use(cast(list[PoolBucket], buckets))


class Job:
    """Ranks that take steps together; ``here`` are those that have not joined."""

    def __init__(self, size: int) -> None:
        self.ranks = [Rank(rank, size) for rank in range(size)]
        self.here = list(self.ranks)
        self.steps = 0
        self.layouts = 0
        self.wanted_layout = 0  # rank 0 wants so many buckets; 0: it is content

    def choose(self, choice: Any) -> None:
        for rank in self.ranks:
            rank.strategy.choice = choice

    def use(self, number: int) -> None:
        for rank in self.ranks:
            rank.use(number)

    def step(self, gradients: random.Random, backwards: int = 1) -> None:
        """Several backwards: zero_grad() comes before each, as in a closure."""
        whole = len(self.here) == len(self.ranks)
        for _ in range(backwards):
            for rank in self.here:
                rank.techniques.new_gradients()
            techniques = {tuple((core.technique, core.flushes) for core in rank.cores) for rank in self.here}
            assert len(techniques) == 1, "ranks disagree"
            for rank in self.here:
                for core in rank.cores:
                    gradient = gradients.randint(-9, 9)
                    rank.came += gradient
                    rank.sent += core.reduce(gradient, whole)
            self._round(whole)
        for rank in self.here:
            rank.techniques.new_step()
            rank.techniques.new_gradients()
        self.steps += 1
        kept = sum(core.kept for rank in self.ranks for core in rank.cores)
        assert sum(rank.came for rank in self.ranks) == sum(rank.sent for rank in self.ranks) + kept

    def _round(self, whole: bool) -> None:
        said = [rank.techniques.values() for rank in self.here]
        leads = self.here[0] is self.ranks[0]
        merged = TechniqueValues(
            keeps_back=any(one.keeps_back for one in said),
            step=said[0].step if leads else None,
            proposal=said[0].proposal if leads else None,
        )
        for rank in self.here:
            rank.techniques.apply(Round(not whole, False, PoolValues(), merged))
        wants = self.wanted_layout if whole else 0
        may = {rank.techniques.may_change_layout() for rank in self.here} if wants else {False}
        assert len(may) == 1
        for rank in self.here if may == {True} else ():
            rank.techniques.layout_will_change()
            rank.use(wants)
        for rank in self.here:
            rank.techniques.end_round(wants > 0 and may == {False})
        if may == {True}:
            self.layouts, self.wanted_layout = self.layouts + 1, 0

    def joined(self) -> None:
        self.here = list(self.ranks)
        for rank in self.ranks:
            rank.techniques.joined(self.steps)


CYCLIC, OTHER = (Spec(technique_libraries.CYCLIC, parts=parts) for parts in (2, 3))
NEGATE = Spec(technique_libraries.NEGATE)
CYCLED, CYCLED_OTHERWISE, NEGATED = (canonical(spec.text) for spec in (CYCLIC, OTHER, NEGATE))


@pytest.mark.parametrize("seed", range(30))
def test_what_is_kept_back_survives_every_change(seed: int) -> None:
    chance = random.Random(seed)
    job = Job(chance.randint(1, 4))
    seen: set[str] = set()
    period = chance.randint(3, 9)

    def choice(bucket: View, step: int) -> Spec | None:
        return (None, CYCLIC, OTHER, NEGATE)[(bucket.index + step // period) % 4]

    job.choose(choice)
    job.use(3)
    for _ in range(200):
        if chance.random() < 0.05:
            job.wanted_layout = chance.randint(1, 4)
        if chance.random() < 0.05 and len(job.here) == len(job.ranks):
            for rank in job.here:
                rank.techniques.flush()
        if chance.random() < 0.1 and len(job.here) > 1:
            job.here.remove(chance.choice(job.here))
        elif chance.random() < 0.15:
            job.joined()
        job.step(chance, chance.choice((1, 1, 1, 3)))
        seen |= {technique for rank in job.ranks for core in rank.cores for technique in core.sent_by}
    assert seen == {"flush", CYCLED, CYCLED_OTHERWISE}
    assert job.layouts > 0
    assert all(rank.strategy.moves == job.layouts for rank in job.ranks)


def test_a_flush_on_request_is_one_step() -> None:
    job = Job(2)
    job.choose(lambda bucket, step: CYCLIC)
    job.use(2)
    gradients = random.Random(1)
    for step in range(6):
        if step == 3:
            for rank in job.ranks:
                rank.techniques.flush()
        job.step(gradients)
        kept = [rank.techniques.table.keeps_something() for rank in job.ranks]
        assert kept == [step != 3] * 2
    text = CYCLED
    assert job.ranks[0].cores[0].sent_by == [text, text, text, "flush", text, text]


def test_a_layout_changes_two_steps_after_it_is_wanted() -> None:
    job = Job(3)
    job.choose(lambda bucket, step: CYCLIC)
    job.use(2)
    gradients = random.Random(2)
    job.step(gradients)
    job.wanted_layout = 4
    for layouts in (0, 0, 1, 1):
        job.step(gradients)
        assert job.layouts == layouts
    assert [rank.cores[3].sent_by for rank in job.ranks] == [[CYCLED]] * 3


def test_techniques_without_state_change_at_once() -> None:
    job = Job(2)
    job.choose(lambda bucket, step: NEGATE if (step + bucket.index) % 2 else None)
    job.use(2)
    for step in range(1, 5):
        job.step(random.Random(step))
        expected = [NEGATED if (step + index) % 2 else None for index in range(2)]
        assert [core.technique for core in job.ranks[1].cores] == expected
    job.wanted_layout = 1
    job.step(random.Random(0))
    assert job.layouts == 1


def test_ranks_that_joined_take_the_others_step() -> None:
    job = Job(3)
    job.choose(lambda bucket, step: NEGATE if step >= 4 else None)
    job.use(1)
    gone = job.here.pop()
    for step in range(5):
        job.step(random.Random(step))
    assert [rank.cores[0].technique for rank in job.ranks] == [None] * 3
    job.joined()
    assert [rank.cores[0].technique for rank in job.ranks] == [NEGATED] * 3
    assert gone.techniques.step == 5
    job.step(random.Random(9))


def test_what_rank_0_proposes_all_hear_at_once() -> None:
    job = Job(3)
    job.use(1)
    job.ranks[0].strategy.wish, job.ranks[1].strategy.wish = b"", b"not of rank 0"
    job.step(random.Random(0))
    assert [rank.strategy.heard for rank in job.ranks] == [[b""]] * 3
    longest = bytes(range(LONGEST_PROPOSAL))
    job.ranks[0].strategy.wish = longest
    gone = job.here.pop()
    job.step(random.Random(0))
    assert [rank.strategy.heard for rank in job.ranks] == [[b""]] * 3, "a rank that joined would miss it"
    job.joined()
    job.step(random.Random(0))
    assert gone.strategy.heard == job.ranks[0].strategy.heard == [b"", longest]
    for wrong in (longest + b".", "text", 7):
        job.ranks[0].strategy.wish = cast(bytes, wrong)
        with pytest.raises(ValueError, match="at most 256 bytes"):
            job.ranks[0].techniques.values()


def test_what_a_strategy_must_not_choose() -> None:
    rank = Rank(0, 1)
    rank.strategy.choice = lambda bucket, step: "negate"
    with pytest.raises(ValueError, match="chose 'negate', which is no Spec"):
        rank.use(1)
    rank.strategy.choice = lambda bucket, step: Spec("absent")
    with pytest.raises(ValueError, match="no strategy 'absent'"):
        rank.use(1)
    largest = Rank(0, 1, Max)
    largest.strategy.choice = lambda bucket, step: NEGATE
    with pytest.raises(ValueError, match="negate, which needs op=hvd.Average or op=hvd.Sum"):
        largest.use(1)


def test_a_strategy_that_chooses_nothing_costs_nothing() -> None:
    class Silent(Strategy):
        pass

    group = SimpleNamespace(rank=lambda: 0, size=lambda: 2)
    techniques = Techniques(Silent(), Sum, cast(ProcessSet, group), "gradient", {})
    techniques.use(cast(list[PoolBucket], [None]))  # a bucket that nothing can be asked of
    techniques.new_step()
    techniques.new_gradients()
    assert techniques.values() == TechniqueValues()
    assert not techniques.needs_rounds
    techniques.apply(Round(False, False, PoolValues(), TechniqueValues()))
    techniques.end_round(wants_layout=False)
    assert techniques.may_change_layout()


def test_the_number_of_a_run_belongs_to_the_state() -> None:
    job = Job(1)
    job.choose(lambda bucket, step: CYCLIC)
    job.use(1)
    state = TechniqueStates(job.ranks[0].techniques, {}, None).state_dict()
    (name, bucket), *_ = state["buckets"].items()
    later = {**state, "buckets": {**state["buckets"], name: {**bucket, "run": bucket["run"] + 1}}}
    assert _restored(later).digest() != _restored(state).digest()
    assert _restored(later).to_dict()["buckets"][name]["run"] == bucket["run"] + 1
    del later["buckets"][name]["run"]
    with pytest.raises(ValueError, match="incomplete"):
        _restored(later)


def _restored(state: dict[str, Any]) -> Any:
    from roundelay.torch._internal.optimizer.kept_state import KeptState

    return KeptState.from_dict(state)
