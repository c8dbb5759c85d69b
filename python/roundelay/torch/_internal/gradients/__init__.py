"""Gradients between backward and step: single ones, groups, and pools that are cut into buckets."""
