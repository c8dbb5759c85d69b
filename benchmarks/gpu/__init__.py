"""All that a machine with a GPU shall show: `tools/gpu_check.sh` runs `python -m benchmarks.gpu.check`.

`steps` lists what is run, `runner` runs a step within its budget, `figures` holds what it measured against
its goals, `facts` tells on what, `document` writes the table of docs/gpu.md. Before all of it `wheels`, which
needs nothing but Python, sees to the packages.
"""
