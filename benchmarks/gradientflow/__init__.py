"""GradientFlow's steps over two nodes: `python -m benchmarks.gradientflow`.

task.py has the model and its data, message.py counts a step's bytes, result.py makes the rows.
benchmarks/contenders.py has the ways to synchronise gradients, and benchmarks/report/gradientflow.py makes
tables and pictures. The ranks run benchmarks/workers/gradientflow.py.
"""
