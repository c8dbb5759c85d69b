"""A rank is killed within a CSC step; the others name it, and a restart without the strategy's state says so.

The victim dies between the allreduce of the norms and that of the chunks. There csc writes the numbers of the
chosen chunks for the first time in a step. The victim forbids writing to their pages, and the signal handler
of that write kills it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core_job import CoreJob, core_job
from ranks import mpirun

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

RANKS, KILLED = 3, 128 + 9
CHUNK = 4
# Each rank's gradient is its number and one, everywhere. So the first half of the chunks is sent first.
TRAINING = f"""
import warnings
from roundelay.torch._internal.optimizer.distributed import wrapper_of
ELEMENTS, CHUNK = 1 << 16, {CHUNK}
CHECKPOINT = Path(sys.argv[1], "checkpoint.pt")
weight = torch.nn.Parameter(torch.zeros(ELEMENTS))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD([weight], lr=1.0, momentum=0.5), [("weight", weight)], op=hvd.Sum,
    strategy=f"csc:keep=0.5,chunk_elements={{CHUNK}},dense_below=0",
)
def step():
    \"\"\"Returns which part was sent; None: all of it.\"\"\"
    optimizer.zero_grad()
    (weight * (rank + 1)).sum().backward()
    every = hvd.strategies.of(optimizer).context.keeper().sent()
    optimizer.step()
    return every[0].part if every else None
def state():
    \"\"\"Returns the bytes of csc's state: what is kept back, two norms a chunk, the chosen chunks.\"\"\"
    (bucket,) = wrapper_of(optimizer).techniques().table.buckets
    return bucket.core.state
"""
DEATH = """
while step() is None: pass
if rank == 0: torch.save({"weight": weight.detach(), "optimizer": optimizer.state_dict()}, CHECKPOINT)
hvd.barrier()
if rank == 1:
    import ctypes, mmap
    own, libc = state(), ctypes.CDLL(None, use_errno=True)
    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def killing(_):
        norms = own[4 * ELEMENTS : 4 * ELEMENTS + 4].view(torch.float32)
        Path(sys.argv[1], "norm").write_text(str(norms.item()))
        die()
    libc.signal(ctypes.c_int(signal.SIGSEGV), killing)
    indices = own.data_ptr() + own.numel() - 4 * ELEMENTS // CHUNK
    page = -(-indices // mmap.PAGESIZE) * mmap.PAGESIZE
    assert page + mmap.PAGESIZE <= indices + 2 * ELEMENTS // CHUNK  # half of the chunks are chosen
    assert libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), 1) == 0  # PROT_READ
with watched():
    step()
"""
RESTART = """
warnings.simplefilter("always")
saved = torch.load(CHECKPOINT)
with torch.no_grad(): weight.copy_(saved["weight"])
optimizer.load_state_dict(saved["optimizer"])
while (part := step()) is None: pass
sent = torch.zeros(ELEMENTS // CHUNK, dtype=torch.bool)
sent[part.chunks.long()] = True
kept = state()[: 4 * ELEMENTS].view(torch.float32)
assert sent.sum() == ELEMENTS // CHUNK // 2
assert torch.equal(kept, torch.where(sent.repeat_interleave(CHUNK), 0.0, rank + 1.0))  # of this step alone
step()
Path(sys.argv[1], f"went on.{rank}").touch()
hvd.shutdown()
"""


@pytest.mark.parametrize("restarts", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_killed_between_norms_and_allreduce(core_job: CoreJob, tmp_path: Path, restarts: bool) -> None:
    end = core_job.conduct(RANKS, TRAINING + DEATH)
    assert end.status == KILLED, end.err
    end.expect_in_time()
    # The first chunk was sent in the step before, so that its norms are those of this step's gradients.
    assert float((tmp_path / "norm").read_text()) == CHUNK * sum(range(1, RANKS + 1)), end.err
    assert set(end.seen) == set(range(RANKS)) - {1}, end.err
    for seen in end.seen.values():
        assert seen.type == "HorovodInternalError"
        assert "rank 1 is gone" in seen.text
        assert " of 'gradient." in seen.text  # the bucket's allreduce, or the agreement after it
    if restarts:
        _restart(core_job, tmp_path)


def _restart(core_job: CoreJob, tmp_path: Path) -> None:
    for ready in tmp_path.glob("ready.*"):
        ready.unlink()
    (tmp_path / "failed_at").unlink()
    again = core_job.conduct(2, TRAINING + RESTART)
    assert again.status == 0, again.err
    assert len(list(tmp_path.glob("went on.*"))) == 2
    assert again.err.count("begins with nothing kept back") == 1, again.err
