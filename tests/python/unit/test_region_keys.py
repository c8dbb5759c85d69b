"""The keys of gradient pools: equal on all ranks, distinct while they are in use."""

import random

import pytest

from roundelay.torch._internal.gradients.region_keys import MOST, JobKeys, RegionKeys
from roundelay.torch.process_sets import ProcessSet


def test_equal_calls_get_equal_keys_and_no_key_is_taken_twice() -> None:
    for seed in range(50):
        choose = random.Random(seed)
        each, first = choose.randrange(1, 9), choose.randrange(100)
        ranks = [RegionKeys(each, first, most=200) for _ in range(3)]
        taken: list[int] = []
        for _ in range(500):
            if taken and choose.random() < 0.5:
                key = taken.pop(choose.randrange(len(taken)))
                for rank in ranks:
                    rank.give_back(key)
            elif (len(taken) + 1) * each < 200:
                keys = {rank.take() for rank in ranks}
                assert len(keys) == 1
                key = keys.pop()
                assert 1 <= key <= 200 - each
                assert all(abs(key - other) >= each for other in taken)
                taken.append(key)


def test_a_block_is_used_again_when_there_is_no_other_the_oldest_first() -> None:
    keys = RegionKeys(8, most=33)  # 4 blocks
    assert [keys.take() for _ in range(2)] == [1, 9]
    keys.give_back(9)
    keys.give_back(1)
    assert [keys.take() for _ in range(4)] == [17, 25, 9, 1]
    with pytest.raises(RuntimeError, match="all 4 blocks of keys for gradient pools are taken"):
        keys.take()
    keys.give_back(17)
    with pytest.raises(KeyError):
        keys.give_back(17)
    assert keys.take() == 17


def test_the_last_key_is_below_the_limit() -> None:
    blocks = (MOST - 1) // 8
    keys = RegionKeys(8, first=blocks - 1)
    assert keys.take() + 7 < MOST
    assert keys.take() == 1


def test_process_sets_count_for_themselves_and_a_new_job_leaves_old_keys_alone() -> None:
    jobs = JobKeys(8)
    jobs.restart()
    first, second = ProcessSet([0, 1]), ProcessSet([1, 2])
    assert jobs.of(first).take() == jobs.of(second).take() == 1
    assert jobs.of(first).take() == 9
    last = jobs.of(first)
    jobs.restart()
    assert jobs.of(first).take() == 1 + 8 * JobKeys.per_job
    last.give_back(9)  # an optimizer of the last job is wrapped again
    assert jobs.of(first).take() == 9 + 8 * JobKeys.per_job
