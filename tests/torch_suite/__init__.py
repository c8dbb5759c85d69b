"""PyTorch's own tests of its backends, which its wheel has, run for roundelay and beside it for gloo.

python -m tests.torch_suite [--backend roundelay gloo] [--world-size 2 3 4] [-k PATTERN] [--docs]
"""
