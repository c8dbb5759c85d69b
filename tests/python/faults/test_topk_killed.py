"""A rank is killed within a TopK step: after the reduce-scatter in the node, before the all-gather.

There topk writes what it keeps back. The victim forbids writing to those pages, and the signal handler of
that write kills it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core_job import CoreJob, core_job
from ranks import mpirun

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

RANKS, KILLED = 3, 128 + 9
BODY = """
from roundelay.torch._internal.optimizer.distributed import wrapper_of
ELEMENTS = 1 << 16
weight = torch.nn.Parameter(torch.zeros(ELEMENTS))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD([weight], lr=1.0, momentum=0.5), [("weight", weight)], op=hvd.Sum,
    strategy="topk:density=0.1,select=radix,dense_below=0",
)
def step():
    optimizer.zero_grad()
    (weight * (rank + 1)).sum().backward()
    optimizer.step()
techniques = wrapper_of(optimizer).techniques()
while not techniques.stateful: step()
step()
hvd.barrier()
if rank == 1:
    import ctypes, mmap
    (bucket,) = techniques.table.buckets
    own, libc = bucket.core.state, ctypes.CDLL(None, use_errno=True)
    # One node: the residual and the momentum of a third of the elements.
    assert own.numel() == 2 * 4 * -(-ELEMENTS // hvd.size())
    kept = own.view(torch.float32)
    # The first tenth of the shard was sent in that step, and its momentum with it.
    assert kept[: own.numel() // 8].count_nonzero() > 0.8 * own.numel() // 8
    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def killing(_):
        Path(sys.argv[1], "summed").touch()
        die()
    libc.signal(ctypes.c_int(signal.SIGSEGV), killing)
    page = -(-own.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (own.data_ptr() + own.numel() // 2 - page) // mmap.PAGESIZE * mmap.PAGESIZE
    assert libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(size), 1) == 0  # PROT_READ
with watched():
    step()
"""


def test_killed_between_the_calls(core_job: CoreJob, tmp_path: Path) -> None:
    end = core_job.conduct(RANKS, BODY)
    assert end.status == KILLED, end.err
    end.expect_in_time()
    assert (tmp_path / "summed").exists(), end.err
    assert set(end.seen) == set(range(RANKS)) - {1}, end.err
    for seen in end.seen.values():
        assert seen.type == "HorovodInternalError"
        assert "rank 1 is gone" in seen.text
        assert " of 'gradient." in seen.text  # the bucket's allreduce, or the agreement after it
