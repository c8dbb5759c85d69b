"""The process beside each rank: it starts the program, forwards its output and signals, and reports its end.

`agent` is that process. `protocol` and `frames` are its language with the launcher; `affinity`,
`horovod_variables` and `torch_variables` make the program's surroundings. It uses only the standard library,
as it runs on hosts that import nothing else of Roundelay.
"""
