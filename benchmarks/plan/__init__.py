"""Measures steps over emulated nodes beside the planner's predictions: `python -m benchmarks.plan`."""
