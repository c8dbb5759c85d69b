"""The process of `roundelayrun`: it decides what to start, starts it, and listens until every rank has ended.

`job` decides, with `hosts`, `launch_mode` and `mpi`. `launcher` starts it, and listens to the agents by
`connections`. `output` shows what the ranks write, and `result` finds the exit status.
"""
