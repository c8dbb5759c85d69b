"""Chooses the sizes of buckets and their techniques: by a cost model, or by trials in training."""
