"""An elastic job's membership in all orders of what can happen to few workers, and in random ones to more."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator

import pytest

from roundelay.run.elastic.membership import Limits, Membership, State, Worker


class _World:
    """A job, the launcher, and which workers have the training's state. Checks what must always hold."""

    def __init__(self, limits: Limits, **hosts: int) -> None:
        self.job = Membership(limits, hosts=hosts)
        self.trained: set[int] = set()
        self.now = 0.0

    def living(self) -> list[Worker]:
        """The workers whose processes run."""
        return [worker for worker in self.job.workers.values() if worker.state is not State.GONE]

    def is_broken(self) -> bool:
        """Whether a rank of the present generation has left it: the others cannot go on training."""
        return any(self.job.workers[number].state is not State.MEMBER for number in self.job.ranks)

    def dies(self, number: int) -> None:
        """A process is killed."""
        self.job.gone(number, well=False, now=self.now)
        self.trained.discard(number)

    def asks(self, number: int) -> None:
        """A program wants a place."""
        self.job.asks(number, has_state=number in self.trained)

    def differs(self, number: int) -> None:
        """A newcomer wants a place, and its program is not that of the others."""
        self.job.refuses(number)

    def ends(self, number: int) -> None:
        """A program ends well."""
        self.job.gone(number, well=True, now=self.now)

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
            self._check(before, ranks)

    def _check(self, before: list[int], ranks: list[int]) -> None:
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


class _Exploration:
    """All that can become of a job. States that differ only in the numbers of workers count once."""

    def __init__(self, members: int, least: int, slots: list[int]) -> None:
        """slots: so many there are at first, and, where there are two numbers, at times."""
        self.seen: set[object] = set()
        self.generations = self.ended = self.lost = 0
        # The second host leaves and comes back.
        self._hosts = [{"one": members - 1, **({"two": 1} if number == members else {})} for number in slots]
        self._start = _World(Limits(members, least, members, (0.0, 0.0)), **self._hosts[0])
        self._start.launcher()

    def run(self) -> None:
        """Explores until there is no other state."""
        states = [self._start]
        while states:
            states = [after for state in states for after in self._after(state)]

    def _after(self, world: _World) -> Iterator[_World]:
        events = [(worker.number, event) for worker in world.living() for event in self._events(worker)]
        for number, event in events:
            after = copy.deepcopy(world)
            getattr(after, event)(number)
            yield from self._new(after)
        for hosts in self._hosts:
            after = copy.deepcopy(world)
            after.job.hosts = hosts
            yield from self._new(after)

    def _new(self, world: _World) -> Iterator[_World]:
        """Lets the launcher act, and yields the state if it is new and not the end."""
        job = world.job
        world.launcher()
        if _key(world) in self.seen:
            return
        self.seen.add(_key(world))
        self.generations += job.generation > 1 and not world.is_broken()
        self.ended += job.is_over()
        self.lost += job.state_is_lost()
        if not (job.is_over() or job.state_is_lost()):
            waits = all(worker.state is State.READY for worker in world.living())
            wanted = job.limits.least if job.generation > 0 else job.limits.wanted
            assert not waits or job.ready_count() < wanted, "all wait for ever"
            yield world

    @staticmethod
    def _events(worker: Worker) -> Iterator[str]:
        yield "dies"
        if worker.state is State.STARTING:
            yield from ("asks", "differs")
        if worker.state is State.MEMBER:
            yield "asks"  # the generation is broken, or does not begin, or it was told of a change
            yield "ends"


def _key(world: _World) -> object:
    job = world.job
    numbers = sorted({*job.ranks, *(worker.number for worker in world.living())})
    index = {number: place for place, number in enumerate(numbers)}
    workers = [job.workers[number] for number in numbers]
    return (
        tuple((worker.state, worker.has_state, worker.number in world.trained) for worker in workers),
        tuple(index[number] for number in job.ranks),
        tuple((worker.host, job.hosts.get(worker.host)) for worker in workers),
        (tuple(job.hosts), job.begun, job.finished, min(job.generation, 2)),
    )


@pytest.mark.parametrize(
    ("members", "least", "slots", "states"),
    [
        (2, 1, [2, 1], 400),
        (3, 1, [3], 500),
        pytest.param(3, 1, [3, 2], 20_000, marks=pytest.mark.nightly),
        pytest.param(3, 2, [3, 2], 20_000, marks=pytest.mark.nightly),
    ],
)
def test_whatever_the_order_the_state_is_kept_and_nobody_waits_for_ever(
    members: int, least: int, slots: list[int], states: int
) -> None:
    exploration = _Exploration(members, least, slots)
    exploration.run()
    assert len(exploration.seen) > states
    assert min(exploration.generations, exploration.ended, exploration.lost) > 0


class _Simulation:
    """Lets everything happen to a job that can, in a random order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = _World(Limits(3, 2, 4, (60.0, 600.0)), one=2, two=2)

    def step(self) -> None:
        """One event, and what the launcher does then."""
        world, job = self.world, self.world.job
        world.now += self.random.random()
        if world.living():
            worker = self.random.choice(world.living())
            event = self.random.randrange(8)
            if event == 0:
                world.dies(worker.number)
            elif worker.state is State.STARTING:
                (world.differs if event == 1 else world.asks)(worker.number)
            elif worker.state is State.MEMBER and (event < 3 or world.is_broken()):
                world.asks(worker.number)
        if self.random.random() < 0.05:
            job.hosts = self.random.choice([{"one": 2, "two": 2}, {"one": 1, "two": 2}, {"one": 2}])
        world.launcher()

    def settle(self) -> bool:
        """When nothing happens to it any more, a job whose state is there runs again; whether it is there."""
        world, job = self.world, self.world.job
        job.hosts = {"one": 2, "two": 2}
        world.now += 10_000.0
        for _ in range(3):
            for worker in world.living():
                if worker.state is State.REFUSED:
                    world.dies(worker.number)
                elif worker.state is State.STARTING or (worker.state is State.MEMBER and world.is_broken()):
                    world.asks(worker.number)
            if job.state_is_lost():
                return False
            world.launcher()
        assert any(worker.state is State.MEMBER for worker in world.living())
        return True

    def end(self) -> None:
        """A rank ends well, the others when they are free to: the job is over, whatever their order."""
        world, job = self.world, self.world.job
        ranks = [number for number in job.ranks if job.workers[number].state is State.MEMBER]
        world.ends(self.random.choice(ranks))
        while not job.is_over():
            if not self._free():
                world.launcher()
            assert self._free(), "all that are left wait for ever"
            worker = self.random.choice(self._free())
            if worker.state is State.REFUSED:
                world.dies(worker.number)
            else:
                (world.ends if self.random.random() < 0.5 else world.asks)(worker.number)
            if self.random.random() < 0.5:
                world.launcher()

    def _free(self) -> list[Worker]:
        """The workers that wait for nothing from the launcher."""
        return [worker for worker in self.world.living() if worker.state is not State.READY]


def _simulate(seeds: range) -> None:
    generations = ended = 0
    for seed in seeds:
        simulation = _Simulation(seed)
        simulation.world.launcher()
        for _ in range(200):
            if simulation.world.job.state_is_lost():
                break
            simulation.step()
        generations += simulation.world.job.generation
        if simulation.settle():
            simulation.end()
            ended += 1
    assert ended > len(seeds) / 50  # most jobs lose their state before
    assert generations > 3 * len(seeds)  # the orders lead somewhere


def test_whatever_happens_the_state_is_kept() -> None:
    _simulate(range(300))


@pytest.mark.nightly
def test_whatever_happens_the_state_is_kept_in_many_orders() -> None:
    _simulate(range(300, 10_300))
