"""A process whose data cache gets no more of the disk, as the kernel refuses to write."""

from __future__ import annotations

import resource
import signal
import warnings

from far_source import FarSource, check
from rank_here import Rank
from roundelay.torch.data import DataCache, memory_folder


def keeps_until_the_disk_is_full(me: Rank) -> None:
    memory_folder.NODE_MEMORY = me.folder / "shm"
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    source = FarSource(me.folder, numbers=40000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 21, resource.RLIM_INFINITY))
    cache = DataCache(source, me.folder / "disk", memory=0)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        check(cache, source)
        check(cache, source)
    assert len(warned) == 1, warned
    assert "is full (" in str(warned[0].message), warned[0].message
    assert 8 <= cache.stats().disk.kept < 24, cache.stats()
    print(warned[0].message)
