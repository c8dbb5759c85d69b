"""What the model says of the papers' claims: `python -m benchmarks.papers`, `--docs` for the page."""
