"""What layers of a network cost in time: their kernels, and models of them that this machine has taught."""
