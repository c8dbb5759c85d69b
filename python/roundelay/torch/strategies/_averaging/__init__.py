"""What the strategies share whose ranks take steps of their own: daso and local_sgd."""
