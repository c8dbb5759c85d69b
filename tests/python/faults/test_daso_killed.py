"""A node is killed while parameters are on their way between nodes; all ranks of the other one name it."""

from __future__ import annotations

from core_job import INIT, PRELUDE, CoreJob, core_job

__all__ = ["core_job"]

RANKS, KILLED = 4, 128 + 9
NODES = """
node, place = divmod(int(os.environ["RANK"]), 2)
os.environ.update(ROUNDELAY_NODE_ID=str(node), LOCAL_RANK=str(place))
"""
# Rank 0 waits for its transfer, which rank 2 never begins, when the ranks of the other node die.
BODY = """
WAITS = Path(sys.argv[1], "waits")
weight = torch.nn.Parameter(torch.zeros(1 << 16))
strategy = hvd.strategies.DASO(2, 1, warmup_epochs=0, cooldown_epochs=0, total_epochs=1)
plain = torch.optim.SGD([weight], lr=1.0)
optimizer = hvd.DistributedOptimizer(plain, [("weight", weight)], strategy=strategy)
def step():
    optimizer.zero_grad()
    (weight * (rank + 1)).sum().backward()
    optimizer.step()
if rank >= 2:
    while not WAITS.exists(): time.sleep(0.01)
    die()
def tell():
    while hvd.stats()["late_merges"] == 0: time.sleep(0.01)
    WAITS.touch()
step()
if rank == 0: threading.Thread(target=tell, daemon=True).start()
with watched():
    step()
"""


def test_a_node_that_dies_during_a_transfer_is_named(core_job: CoreJob) -> None:
    job = core_job.begin(RANKS, BODY, launcher="roundelayrun --gloo", prelude=PRELUDE + NODES + INIT)
    end = core_job.ended(job)
    assert end.status == KILLED, end.err
    end.expect_in_time()
    assert set(end.seen) == {0, 1}, end.err
    for seen in end.seen.values():
        assert seen.type == "HorovodInternalError"
        assert "rank 2 is gone" in seen.text or "rank 3 is gone" in seen.text, seen.text
    assert "parameters." in end.seen[0].text, end.seen[0].text
