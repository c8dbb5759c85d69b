"""What DistributedOptimizer does to an optimizer: the wrapper, its gradients, buckets and strategy."""
