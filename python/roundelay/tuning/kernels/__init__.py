"""The times of a network's layers: their kernels, and models of these that are learned on this machine."""
