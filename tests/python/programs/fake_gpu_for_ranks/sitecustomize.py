"""Gives each rank, whatever its program, the fake device."""

from __future__ import annotations

import os

if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("RANK")) is not None:
    import torch

    import gpu_device

    gpu_device.use()
    torch.set_default_device("cpu")
