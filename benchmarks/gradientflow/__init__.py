"""GradientFlow's steps over two nodes: `python -m benchmarks.gradientflow`.

contenders.py lists the ways to synchronise gradients, task.py has the model and its data, message.py
counts a step's bytes, result.py makes the rows, document.py and plot.py show them. The ranks run
benchmarks/workers/gradientflow.py.
"""
