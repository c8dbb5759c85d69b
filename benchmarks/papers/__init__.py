"""Compares the papers' claims with the model: `python -m benchmarks.papers`; `--docs` writes the page."""
