"""A program written for Horovod: `horovod_training.py JSON`, the optimizer's further arguments."""

from __future__ import annotations

import json
import sys

import horovod.torch as hvd
import torch

hvd.init()
parameter = torch.nn.Parameter(torch.zeros(100))
plain = torch.optim.SGD([parameter], lr=1.0)
arguments = json.loads(sys.argv[1])
optimizer = hvd.DistributedOptimizer(plain, [("weight", parameter)], op=hvd.Sum, **arguments)
for _ in range(6):
    optimizer.zero_grad()
    (parameter * (1 + 2.0**-12)).sum().backward()
    optimizer.step()
exact = bool((parameter == -6 * hvd.size() * (1 + 2.0**-12)).all())
names = [name for name in ("negate", "csc:") if name in hvd.report().partition("bucket")[2]]
if hvd.rank() == 0:
    print("exact" if exact else "rounded", *names)
