"""A rank is killed within a PowerSGD step, between the two allreduces; the others name it.

There parameters that go densely are written back into the bucket. The victim forbids writing to a page of
one, when its gradient is in the bucket and the last gradient has not come yet. The signal handler of that
write kills it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core_job import CoreJob, core_job
from ranks import mpirun

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

RANKS, KILLED = 3, 128 + 9
# Backward brings the gradient of `whole` first, so that it lies in the first rank's shard of the bucket.
TRAINING = """
import ctypes, mmap
from roundelay.torch._internal.optimizer.distributed import wrapper_of
whole = torch.nn.Parameter(torch.zeros(1 << 14))
matrix = torch.nn.Parameter(torch.zeros(300, 400))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD([matrix, whole], lr=1.0), [("matrix", matrix), ("whole", whole)], op=hvd.Sum,
    strategy="power_sgd:rank=1,dense_parameters=whole",
)
def step():
    optimizer.zero_grad()
    first = (matrix * (rank + 1.0)).sum()
    (first + (whole * 2.0).sum()).backward()
    optimizer.step()
while not wrapper_of(optimizer).techniques().table.keeps_something(): step()
step()
hvd.barrier()
if rank == 1:
    libc = ctypes.CDLL(None, use_errno=True)
    place = whole.grad.data_ptr()
    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def killing(_):
        Path(sys.argv[1], "wrote").touch()
        die()
    libc.signal(ctypes.c_int(signal.SIGSEGV), killing)
    def protect(gradient):
        page = -(-place // mmap.PAGESIZE) * mmap.PAGESIZE
        assert libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), 1) == 0  # PROT_READ
    matrix.register_hook(protect)
with watched():
    step()
"""


def test_killed_between_the_allreduces_of_factors(core_job: CoreJob, tmp_path: Path) -> None:
    end = core_job.conduct(RANKS, TRAINING)
    assert end.status == KILLED, end.err
    end.expect_in_time()
    assert (tmp_path / "wrote").exists(), end.err
    assert set(end.seen) == set(range(RANKS)) - {1}, end.err
    for seen in end.seen.values():
        assert seen.type == "HorovodInternalError"
        assert "rank 1 is gone" in seen.text
        assert " of 'gradient." in seen.text  # the bucket's allreduce, or the agreement after it
