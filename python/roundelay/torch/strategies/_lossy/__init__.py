"""What the lossy strategies share: csc, topk, power_sgd and quantised keep gradients back."""
