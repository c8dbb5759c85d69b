"""Roundelay beside its peers: `python -m benchmarks.allreduce`, `python -m benchmarks.train_step`."""
