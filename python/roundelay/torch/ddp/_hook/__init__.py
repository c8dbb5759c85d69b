"""The parts of roundelay.torch.ddp: strategies as communication hooks of DistributedDataParallel."""
