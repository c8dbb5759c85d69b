"""The emulated network of tests and benchmarks: nodes that can be cut off, in racks, with an mpirun.

with Rig(nodes=2, mbit=1000) as rig:
    rig.mpirun("mpirun", slots=[2, 2], program=["python", "train.py"])
"""

from roundelay.emulate import why_not
from tests.rig.racks import RackRig
from tests.rig.rig import Rig

__all__ = ["RackRig", "Rig", "why_not"]
