"""Chooses the sizes of buckets: by a cost model, or by trying them in training."""
