"""Who is in the next generation: chosen cases, and random orders of all that can happen."""

from __future__ import annotations

import random

import pytest

from roundelay.run.elastic.membership import Change, Limits, Membership, State, Worker


def _job(wanted: int = 3, least: int = 2, most: int = 4, **hosts: int) -> Membership:
    return Membership(Limits(wanted, least, most, (60.0, 600.0)), hosts=hosts or {"one": most})


def _start(job: Membership, now: float = 0.0) -> list[int]:
    return [job.started(host).number for host in job.hosts_to_start_on(now)]


def _ask(job: Membership, *numbers: int, has_state: bool = True) -> None:
    for number in numbers:
        job.asks(number, has_state=has_state)


def _running(**limits: int) -> Membership:
    """A job whose first generation has three ranks."""
    job = _job(most=limits.get("most", 3), least=limits.get("least", 2))
    _ask(job, *_start(job), has_state=False)
    assert job.next_generation(patient=True) == [0, 1, 2]
    return job


def test_the_first_generation_waits_for_all_that_are_wanted_while_it_is_patient() -> None:
    job = _job()
    assert _start(job) == [0, 1, 2, 3]
    _ask(job, 2, 1, has_state=False)
    assert job.next_generation(patient=True) is None
    assert job.next_generation(patient=False) == [1, 2]
    assert job.change() is Change.NONE
    _ask(job, 0, has_state=False)
    assert job.change() is Change.ADDED


def test_survivors_keep_their_order_and_newcomers_follow() -> None:
    job = _running()
    job.gone(0, well=False, now=1.0)
    assert _start(job, 1.0) == [3]
    _ask(job, 3, has_state=False)
    assert job.next_generation(patient=True) is None  # 1 and 2 still run
    _ask(job, 2, 1)
    assert job.next_generation(patient=True) == [1, 2, 3]
    assert job.generation == 2


def test_a_rank_without_state_never_begins_a_generation_alone() -> None:
    job = _running(least=1)
    _ask(job, 0, 1, 2)
    assert job.next_generation(patient=True) == [0, 1, 2]
    for number in (0, 1, 2):
        job.gone(number, well=False, now=1.0)
    assert job.state_is_lost()
    _ask(job, *_start(job, 1000.0), has_state=False)
    assert job.next_generation(patient=False) is None


def test_before_anybody_has_state_a_lost_generation_is_begun_anew() -> None:
    job = _running()
    job.gone(0, well=False, now=1.0)
    _ask(job, 1, 2, has_state=False)
    assert not job.state_is_lost()
    assert job.next_generation(patient=True) == [1, 2]


def test_who_has_no_slot_any_more_leaves() -> None:
    job = _running()
    job.hosts = {"one": 2}
    assert job.change() is Change.REMOVED
    _ask(job, 0, 1, 2)
    assert job.dismissed() == [2]
    assert job.next_generation(patient=True) == [0, 1]


def test_a_host_that_fails_is_left_alone_for_longer_and_longer() -> None:
    job = _running()
    for number in (0, 1, 2):
        job.gone(number, well=False, now=1.0)
    assert job.is_blacklisted("one", 60.0)
    assert not job.is_blacklisted("one", 62.0)
    for number in _start(job, 62.0):
        job.gone(number, well=False, now=62.0)
    assert job.is_blacklisted("one", 181.0)
    assert not job.is_blacklisted("one", 183.0)


def test_nothing_begins_after_a_rank_has_ended_well() -> None:
    job = _running()
    job.gone(0, well=True, now=1.0)
    _ask(job, 1, 2)
    assert job.next_generation(patient=True) is None
    assert _start(job) == []
    assert job.change() is Change.NONE
    job.started("one")  # a replacement that is not ready yet holds nothing up
    assert not job.is_over()
    for number in (1, 2):
        job.gone(number, well=True, now=2.0)
    assert job.is_over()


@pytest.mark.parametrize("asks_first", [True, False])
def test_a_rank_that_wants_to_go_on_after_another_has_ended_is_refused(asks_first: bool) -> None:
    job = _running()
    if asks_first:
        _ask(job, 1)
    job.gone(0, well=True, now=1.0)
    if not asks_first:
        _ask(job, 1)
    assert job.refused() == [1]
    job.refuses(1)
    assert job.refused() == []
    late = job.started("one").number
    _ask(job, late, has_state=False)
    assert job.dismissed() == [late]
    job.dismisses(late)
    job.gone(2, well=True, now=2.0)
    assert not job.is_over()
    job.gone(1, well=False, now=2.0)
    assert job.is_over()


class _Simulation:
    """Lets everything happen to a job that can, in a random order, and checks what must always hold."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.job = _job(3, 2, 4, one=2, two=2)
        self.trained: set[int] = set()  # workers that have the state
        self.survivors: list[int] = []

    def step(self) -> None:
        """One event, and what the launcher does then."""
        job, self.now = self.job, self.now + self.random.random()
        living = [worker for worker in job.workers.values() if worker.state is not State.GONE]
        if living:
            worker = self.random.choice(living)
            event = self.random.randrange(8)
            if event == 0:
                job.gone(worker.number, well=False, now=self.now)
                self.trained.discard(worker.number)
            elif worker.state is State.STARTING:
                job.asks(worker.number, has_state=False)
            elif worker.state is State.MEMBER and (event < 3 or self._is_broken()):
                job.asks(worker.number, has_state=worker.number in self.trained)
        if self.random.random() < 0.05:
            job.hosts = self.random.choice([{"one": 2, "two": 2}, {"one": 1, "two": 2}, {"one": 2}])
        self.launcher()

    def end(self) -> None:
        """A rank ends well, the others when they are free to: the job is over, whatever their order."""
        job = self.job
        first = self.random.choice([number for number in job.ranks if self._is(number, State.MEMBER)])
        job.gone(first, well=True, now=self.now)
        while not job.is_over():
            if not self._free():
                self.launcher()
            assert self._free(), "all that are left wait for ever"
            worker = self.random.choice(self._free())
            if worker.state is State.REFUSED or self.random.random() < 0.5:
                job.gone(worker.number, well=worker.state is not State.REFUSED, now=self.now)
            else:
                job.asks(worker.number, has_state=worker.number in self.trained)
            if self.random.random() < 0.5:
                self.launcher()

    def _is_broken(self) -> bool:
        return not all(self._is(number, State.MEMBER) for number in self.job.ranks)

    def _is(self, number: int, state: State) -> bool:
        return self.job.workers[number].state is state

    def _free(self) -> list[Worker]:
        """The workers that wait for nothing from the launcher."""
        waiting = (State.READY, State.GONE)
        return [worker for worker in self.job.workers.values() if worker.state not in waiting]

    def launcher(self) -> None:
        """Does what the driver does at each tick."""
        job = self.job
        for host in job.hosts_to_start_on(self.now):
            job.started(host)
        for number in job.dismissed():
            job.dismisses(number)
            self.trained.discard(number)
        for number in job.refused():
            job.refuses(number)
        before = list(job.ranks)
        runs = any(job.workers[number].state is State.MEMBER for number in before)
        ranks = job.next_generation(patient=True)
        assert not (runs and ranks), "two generations at a time"
        if ranks is not None:
            self.check(before, ranks)

    def check(self, before: list[int], ranks: list[int]) -> None:
        """A new generation has the state, and no more ranks than allowed."""
        job = self.job
        assert job.limits.least <= len(ranks) <= job.limits.most
        assert len(set(ranks)) == len(ranks)
        for host, slots in job.hosts.items():
            assert sum(job.workers[number].host == host for number in ranks) <= slots
        if job.begun:
            assert ranks[0] in self.trained
        kept = [number for number in ranks if number in self.trained and number in before]
        assert kept == [number for number in before if number in kept]
        self.trained |= set(ranks)  # the first thing that a generation does is to share the state


def _simulate(seeds: range) -> None:
    generations = ended = 0
    for seed in seeds:
        simulation = _Simulation(seed)
        simulation.launcher()
        for _ in range(200):
            if simulation.job.state_is_lost():
                break
            simulation.step()
        generations += simulation.job.generation
        if _settle(simulation):
            simulation.end()
            ended += 1
    assert ended > len(seeds) / 50  # most jobs lose their state before
    assert generations > 3 * len(seeds)  # the orders lead somewhere


def _settle(simulation: _Simulation) -> bool:
    """When nothing happens to it any more, a job whose state is there runs again. Returns whether it is."""
    job = simulation.job
    job.hosts = {"one": 2, "two": 2}
    simulation.now += 10_000.0
    for _ in range(3):
        for worker in list(job.workers.values()):
            if worker.state is State.STARTING or (worker.state is State.MEMBER and simulation._is_broken()):
                job.asks(worker.number, has_state=worker.number in simulation.trained)
        if job.state_is_lost():
            return False
        simulation.launcher()
    assert any(worker.state is State.MEMBER for worker in job.workers.values())
    return True


def test_whatever_happens_the_state_is_kept() -> None:
    _simulate(range(300))


@pytest.mark.nightly
def test_whatever_happens_the_state_is_kept_in_many_orders() -> None:
    _simulate(range(300, 10_300))
