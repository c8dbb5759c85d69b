"""What the lossy strategies share: csc, topk and power_sgd keep gradients back."""
