"""Broadcasts from a fake GPU, which also chooses the fabric, and from the CPU."""

from __future__ import annotations

import torch

import roundelay.torch as hvd

hvd.init()
for device in ("fakegpu", "cpu"):
    hvd.broadcast(torch.ones(100, device=device), 0, name=device)
