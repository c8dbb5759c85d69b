"""Trains with strategy auto until it has chosen, and prints what. Gradients are large enough to measure."""

from __future__ import annotations

import torch

import roundelay.torch as hvd

hvd.init()
parameter = torch.nn.Parameter(torch.zeros(1 << 17))
candidates = ("ring", "recursive_doubling", "halving_doubling")
auto = hvd.strategies.Auto(candidates, trial_steps=1)
plain = torch.optim.SGD([parameter], lr=1.0)
optimizer = hvd.DistributedOptimizer(plain, op=hvd.Sum, strategy=auto)
before = auto.choice
steps = 0
while steps < 200:
    steps += 1
    optimizer.zero_grad()
    (parameter * (hvd.rank() + 1.0)).sum().backward()
    optimizer.step()
    if hvd.broadcast_object(auto.choice != before):
        break
assert set(parameter.tolist()) == {-10.0 * steps}
if hvd.rank() == 0:
    print("choice:", auto.choice)
