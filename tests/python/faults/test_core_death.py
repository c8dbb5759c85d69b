"""A rank is killed: who is left says which one, and the job ends soon, under either launcher."""

from __future__ import annotations

import pytest

from core_job import INIT, PRELUDE, CoreJob, core_job
from ranks import mpirun

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

KILLED = 128 + 9

# What the survivors do when the victim dies; the victim dies in the middle of it.
WORK = {
    "waiting": """
        if rank != VICTIM:
            with watched():
                hvd.allreduce(torch.ones(3), name="never.submitted")
        time.sleep(60)
    """,
    "small": """
        with watched():
            while True:
                hvd.allreduce(torch.ones(3), name="small", op=hvd.Sum)
    """,
    "big": """
        big = torch.ones(16 << 20)
        with watched():
            while True:
                hvd.allreduce_(big, name="big", op=hvd.Min)
    """,
    "barrier": """
        with watched():
            while True:
                hvd.barrier()
    """,
    "join": """
        if rank != VICTIM:
            with watched():
                hvd.join()
        time.sleep(60)
    """,
    "step": """
        with watched():
            while True:
                step()
    """,
}
# What comes before, with all of them alive: it takes long on a busy machine.
BEFORE = """
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
def step():
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
step()
"""
# What the survivors' errors call the operation, which is under way or could not be started any more.
NAMED = {
    "waiting": "allreduce of 'never.submitted' was",
    "small": "allreduce of 'small' was",
    "big": "allreduce of 'big' was",
    "barrier": "barrier() was",
    "join": "join() was",
    "step": " of 'gradient.",  # an allreduce, or the agreement after it
}


def body(work: str, victim: int) -> str:
    lines = [line[8:] for line in WORK[work].splitlines()]
    before = BEFORE if work == "step" else ""
    return f"{before}VICTIM = {victim}\nif rank == VICTIM: die_watched(0.7)\n" + "\n".join(lines)


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("work", ["small", *sorted(WORK.keys() - {"small"})])
def test_survivors_raise_an_error_that_names_the_dead(core_job: CoreJob, work: str, victim: int) -> None:
    np = 2 if work == "big" else 3
    end = core_job.conduct(np, body(work, victim))
    assert end.status == KILLED, end.err
    end.expect_in_time()
    assert set(end.seen) == set(range(np)) - {victim}, end.err
    for seen in end.seen.values():
        assert seen.type == "HorovodInternalError"
        assert f"rank {victim} is gone" in seen.text
        assert NAMED[work] in seen.text
    assert f"rank {victim} " in end.err.strip().splitlines()[-1]


def test_each_handle_says_what_it_was(core_job: CoreJob) -> None:
    """The victim lives until all of them are submitted, and takes part in none of them."""
    body = """
if rank == 1:
    while not Path(sys.argv[1], "go").exists(): time.sleep(0.01)
    die()
model = torch.nn.Linear(4, 1, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
model.weight.register_post_accumulate_grad_hook(lambda _: Path(sys.argv[1], "go").touch())
handles = [
    hvd.allreduce_async(torch.ones(3), name="a"),
    hvd.grouped_allreduce_async([torch.ones(3), torch.ones(4)], name="g"),
    hvd.broadcast_async(torch.ones(3), 0, name="b"),
    hvd.allgather_async(torch.ones(3)),
]
texts = []
def failed(call):
    try:
        call()
    except hvd.HorovodInternalError as error:
        texts.append(str(error))
failed(lambda: model(torch.ones(4)).backward())
for handle in handles:
    failed(lambda: hvd.synchronize(handle))
note(Exception("\\n".join(texts)))
"""
    end = core_job.conduct(2, body)
    step, *texts = end.seen[0].text.splitlines()
    cause = texts[0].partition(" (while ")[0]
    assert cause.startswith("rank 1 is gone: ")
    assert texts == [
        f"{cause} (while {what} was under way)"
        for what in (
            "allreduce of 'a'",
            "allreduce of 'g' (2 tensors)",
            "broadcast of 'b'",
            "allgather of 'allgather.noname.1'",
        )
    ]
    assert step.startswith(f"{cause} (")
    assert step.endswith("; with it 'gradient.weight'")


@pytest.mark.parametrize(
    ("work", "victim"), [("waiting", 0), ("small", 1), pytest.param("big", 1, marks=pytest.mark.nightly)]
)
def test_plain_mpirun_ends_all(core_job: CoreJob, work: str, victim: int) -> None:
    end = core_job.conduct(2, body(work, victim), launcher="mpirun")
    assert end.status != 0
    end.expect_in_time()


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("launcher", ["roundelayrun", "mpirun"])
def test_killed_before_init(core_job: CoreJob, launcher: str, victim: int) -> None:
    early = f"if rank == {victim}: during(0.0, die); time.sleep(60)\n"
    end = core_job.ended(core_job.begin(3, "", launcher=launcher, prelude=PRELUDE + early + INIT))
    assert end.status == KILLED if launcher == "roundelayrun" else end.status != 0, end.err
    end.expect_in_time()


@pytest.mark.slow
def test_killed_while_others_are_on_their_way_out(core_job: CoreJob) -> None:
    end = core_job.conduct(2, "if rank == 1: during(1.0, die); time.sleep(60)\nhvd.shutdown()")
    assert end.status == KILLED, end.err
    end.expect_in_time()
