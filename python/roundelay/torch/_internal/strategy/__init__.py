"""What a strategy is to DistributedOptimizer. roundelay.torch.strategies has those that there are."""
