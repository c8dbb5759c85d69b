"""Commits that outlive their processes, in the node's memory: torchrun restarts all workers after a loss."""
