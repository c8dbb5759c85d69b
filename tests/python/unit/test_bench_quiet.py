"""Which repetitions count, and what they tell: shares of others, intervals, and the clocks themselves."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from benchmarks import measure, quiet
from benchmarks.quiet import Reading, Watch, share_of_others
from benchmarks.table.result import Result
from benchmarks.table.samples import Samples, compare, tail

START = Reading(wall=10.0, ours=5.0, others={1: 1.0, 2: 2.0}, busy=100.0, steal=3.0)


@pytest.mark.parametrize(
    ("after", "share"),
    [
        (Reading(11.0, 7.0, {1: 1.0, 2: 2.0}, 102.0, 3.0), 0.0),
        (Reading(11.0, 5.0, {1: 1.1, 2: 2.2}, 100.3, 3.0), 0.15),
        (Reading(11.0, 5.0, {1: 1.0, 3: 0.5}, 100.5, 3.0), 0.25),  # 3 is new, 2 has ended
        (Reading(11.0, 5.0, {1: 0.4, 2: 2.0}, 100.4, 3.0), 0.2),  # the id of 1 is another's now
        (Reading(11.0, 5.0, {1: 1.0, 2: 2.0}, 100.0, 3.1), 0.05),  # stolen
        (Reading(11.0, 5.5, {1: 1.0, 2: 2.0}, 101.0, 3.0), 0.225),  # came and went; ticks are coarse
        (Reading(11.0, 7.0, {1: 1.0, 2: 2.0}, 101.9, 3.0), 0.0),
    ],
)
def test_the_share_of_others(after: Reading, share: float) -> None:
    assert share_of_others(START, after, cores=2) == pytest.approx(share)


def _burning(seconds: float) -> str:
    begin = "import time\nbegin = time.process_time()\n"
    return f"{begin}while time.process_time() - begin < {seconds}: pass\nprint(flush=True)\ninput()"


@pytest.mark.parametrize("ours", [False, True])
def test_the_clocks_of_a_process_that_works(ours: bool) -> None:
    program = f"input()\n{_burning(0.3)}"  # it works between the two readings
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        own = (os.getpid(), child.pid) if ours else (os.getpid(),)
        watch = Watch(own.__contains__)
        before = watch.read()
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        after = watch.read()
        child.communicate(b"\n")
    assert (child.pid in after.others) == (not ours)
    if ours:
        assert after.ours - before.ours >= 0.3
    else:
        assert after.others[child.pid] >= 0.3
    assert os.getpid() not in after.others


def test_children_that_have_ended_are_ours() -> None:
    watch = Watch(os.getpid().__eq__)
    before = watch.read()
    subprocess.run([sys.executable, "-c", _burning(0.3)], input=b"\n", stdout=subprocess.DEVNULL, check=True)
    assert watch.read().ours - before.ours >= 0.29


def test_ended_children_of_another_rank_are_ours() -> None:
    """A rank's DataLoader workers start and end within a turn that other ranks measure too."""
    program = "import subprocess, sys; input()\n"
    child = f"[sys.executable, '-c', {_burning(0.3)!r}]"
    program += f"subprocess.run({child}, input=b'.')\nprint('ended')\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as rank:
        assert rank.stdin is not None
        assert rank.stdout is not None
        watch = Watch((os.getpid(), rank.pid).__contains__)
        before = watch.read()
        rank.stdin.write("\n")
        rank.stdin.flush()
        assert rank.stdout.readline() == "\n"  # its child's
        assert rank.stdout.readline() == "ended\n"
        assert watch.read().ours - before.ours >= 0.28  # two counts are rounded down
        rank.communicate("\n")


def test_kernel_threads_are_nobodys() -> None:
    watch = Watch(os.getpid().__eq__)
    kernel = [
        pid for pid in watch.read().others if os.path.exists(f"/proc/{pid}/task") and _is_of_kernel(pid)
    ]
    assert kernel == []


def _is_of_kernel(pid: int) -> bool:
    """Tell whether a process maps nothing and has the kernel's parent. One that ends maps nothing, too."""
    try:
        with open(f"/proc/{pid}/status") as file:
            status = file.read()
    except OSError:
        return False
    return "VmSize" not in status and "PPid:\t2\n" in status


def test_a_repetition_is_as_disturbed_as_its_worst_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = iter([0.5, 0.5, 0.1, 0.2, 0.4, 0.3])
    monkeypatch.setattr(measure, "share_of_others", lambda *_: next(shares))
    order: list[str] = []

    def turn(name: str) -> Callable[[], list[float]]:
        return lambda: order.append(name) or [float(len(order))]  # type: ignore[func-returns-value]

    found = measure.in_turn({"a": turn("a"), "b": turn("b")}, repetitions=2, warmups=1)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert found.others == [0.2, 0.4]
    assert found.single() == {"a": [4.0, 5.0], "b": [3.0, 6.0]}


def test_repetitions_in_which_others_ran_are_dropped() -> None:
    samples = Samples({"a": [1.0, 100.0, 3.0], "b": [2.0, 1.0, 6.0]}, [0.0, 0.5, quiet.MOST_OTHERS])
    assert (samples.kept, samples.of, samples.why_not) == ([0, 2], 3, "")
    assert (samples.cost("a").value, samples.ratio("b", "a").value) == (2.0, 2.0)


@pytest.mark.parametrize(("kept", "enough"), [(0, False), (1, False), (2, True), (4, True)])
def test_too_few_repetitions_say_so_instead_of_a_ratio(kept: int, enough: bool) -> None:
    others = [0.0] * kept + [1.0] * (4 - kept)
    found = compare("work", Samples({"roundelay": [1.0] * 4, "gloo": [2.0] * 4}, others), {"gloo": "Gloo"})
    if enough:
        assert (found.why, found.kept, found.of, len(found.peers)) == ("", kept, 4, 1)
    else:
        assert found == Result("work", why=f"other processes ran in {4 - kept} of 4 repetitions")


def test_an_interval_is_about_its_value_and_narrows() -> None:
    noise = random.Random(1)
    own = [1.0 + noise.gauss(0, 0.1) for _ in range(400)]
    theirs = [3.0 + noise.gauss(0, 0.3) for _ in range(400)]
    widths = []
    for count in (20, 400):
        ratio = Samples({"a": own[:count], "b": theirs[:count]}, [0.0] * count).ratio("b", "a")
        assert ratio.low is not None
        assert ratio.high is not None
        assert ratio.low < 3.0 < ratio.high
        assert ratio.low <= ratio.value <= ratio.high
        widths.append(ratio.high - ratio.low)
    assert widths[1] < widths[0] / 2


def test_a_ratio_that_is_the_same_in_each_repetition_has_no_interval() -> None:
    """Whole repetitions are drawn: a ratio that is the same in each has no interval to speak of."""
    own = [float(2**index) for index in range(9)]
    ratio = Samples({"a": own, "b": [3 * value for value in own]}, [0.0] * 9).ratio("b", "a")
    assert (ratio.low, ratio.value, ratio.high) == (3.0, 3.0, 3.0)
    again = Samples({"a": own, "b": own[::-1]}, [0.0] * 9)
    assert again.ratio("b", "a") == again.ratio("b", "a")


def test_bases_are_taken_off_and_a_cost_near_nothing_is_taken_as_the_least() -> None:
    values = {"none": [1.0, 2.0, 3.0], "a": [2.0, 3.0, 4.0], "b": [5.0, 6.0, 7.0], "bare": [0.5, 0.5, 0.5]}
    samples = Samples(values, [0.0] * 3, {"a": "none", "b": "none"}, least=0.25)
    assert (samples.cost("a").value, samples.cost("bare").value) == (1.0, 0.5)
    assert (samples.ratio("b", "a").value, samples.ratio("a", "bare").value) == (4.0, 2.0)
    hidden = Samples({**values, "a": values["none"]}, [0.0] * 3, {"a": "none", "b": "none"}, least=0.25)
    assert hidden.ratio("b", "a").value == 16.0


def test_the_tail_is_bounded_where_enough_lie_above_it() -> None:
    late = tail([float(value) for value in range(1, 2001)])
    assert late.value == 1980
    assert late.low is not None
    assert late.high is not None
    assert late.low < 1980 < late.high
    few = tail([float(value) for value in range(1, 101)])
    assert (few.value, few.high) == (99, None)
