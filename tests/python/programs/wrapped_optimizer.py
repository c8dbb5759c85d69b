"""The class of a wrapped optimizer has Horovod's name, and copies have the plain class."""

from __future__ import annotations

import copy
import pickle

import roundelay.as_horovod  # noqa: F401 (horovod is there from here on)

# isort: split
import horovod.torch as hvd
import torch

hvd.init()
plain = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=1.0, momentum=0.5)
shown = str(plain)
optimizer = hvd.DistributedOptimizer(plain)
assert optimizer is plain
assert isinstance(plain, torch.optim.SGD)
assert str(plain) == shown
assert str(plain.__class__) == "<class 'horovod.torch.optimizer.SGD'>"  # Lightning looks for this
for copied in (copy.copy(plain), copy.deepcopy(plain), pickle.loads(pickle.dumps(plain))):
    assert type(copied) is torch.optim.SGD
hvd.DistributedOptimizer(plain, strategy="csc:keep=0.5,momentum=masked")  # which is for SGD alone
assert type(plain).__mro__[1] is torch.optim.SGD
print("wrapped")
