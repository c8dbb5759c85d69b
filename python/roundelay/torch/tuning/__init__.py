"""Chooses the sizes of buckets: by a model of the link, or by trying them."""
