"""The papers' machines. Units: seconds, bytes a second. Nothing here is fitted to the model's result.

GradientFlow's samples a second of one GPU are not published: they follow from its published minutes and
speedup.

A *published* number stands in the paper's abstract or in reviews of it. A *usual* one is the hardware's
nominal rate, or a generally reported one.
"""

from __future__ import annotations

import dataclasses

from roundelay import _model


@dataclasses.dataclass(frozen=True, slots=True)
class Machines:
    """Nodes of GPUs, and the training of one GPU."""

    nodes: int
    gpus: int
    latency: float  # seconds of a message between nodes
    bandwidth: float  # bytes a second of a node's card
    node_latency: float
    node_bandwidth: float  # bytes a second of a GPU inside its node
    memory_bandwidth: float
    samples_per_second: float  # one GPU alone
    batch: float  # samples of one GPU in a step

    @property
    def ranks(self) -> int:
        """All GPUs."""
        return self.nodes * self.gpus

    def cluster(self) -> _model.Cluster:
        """Return the levels: GPUs in a node, and nodes."""
        inner = _model.Link(self.node_latency, self.node_bandwidth)
        outer = _model.Link(self.latency, self.bandwidth, sharers=self.gpus)
        levels = [_model.Level(self.gpus, inner), _model.Level(self.nodes, outer)]
        return _model.Cluster(levels, self.memory_bandwidth)


# GradientFlow, Cluster-V: 64 nodes of 8 V100 (the split is usual), 56 Gbit/s InfiniBand (published), PCIe
# inside (usual), 10 us a message (usual). AlexNet: 95 epochs of 1.281 million images in 90 s, and a speedup
# of 410.2 on 512 GPUs, so 3,297 images/s alone; ResNet-50: 90 epochs in 7.3 minutes at 84.8 %, so 606.
CLUSTER_V = Machines(64, 8, 10e-6, 7e9, 5e-6, 10e9, 700e9, 3297.0, 128.0)
CLUSTER_V_RESNET = dataclasses.replace(CLUSTER_V, samples_per_second=606.0)

# Awan et al.: 64 GPUs, EDR InfiniBand, one P100 a node, 219 images/s of ResNet-50 (usual).
EDR_P100 = Machines(64, 1, 5e-6, 12.5e9, 5e-6, 12.5e9, 500e9, 219.0, 64.0)

# BlueConnect: 48 nodes of 4 P100 with NVLink, EDR InfiniBand (192 GPUs: published; the rest usual).
MINSKY = Machines(48, 4, 5e-6, 12.5e9, 3e-6, 20e9, 500e9, 219.0, 32.0)

# HiTopKComm: 16 nodes of 8 V100 (published), 25 Gbit/s Ethernet, NVLink inside (usual).
TENCENT = Machines(16, 8, 20e-6, 3.125e9, 5e-6, 40e9, 700e9, 1200.0, 64.0)

# DASO: 64 nodes of 4 A100, HDR InfiniBand (usual).
BOOSTER = Machines(64, 4, 5e-6, 25e9, 3e-6, 80e9, 1300e9, 1200.0, 64.0)

# Horovod: 128 nodes of 4 P100, 25 Gbit/s RoCE (published: 512 GPUs, 25 Gbit/s), fusion of 64 MiB (its
# default). Images/s of one GPU are usual.
HOROVOD_RESNET = Machines(128, 4, 20e-6, 3.125e9, 5e-6, 10e9, 500e9, 130.0, 64.0)
HOROVOD_VGG = dataclasses.replace(HOROVOD_RESNET, samples_per_second=147.0)
