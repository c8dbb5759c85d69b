"""Gradients between backward and step: one, a group, a pool cut into buckets."""
