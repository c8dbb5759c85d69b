"""The process of `roundelayrun`: it decides what to start, starts it, and listens until every rank has ended.

`job` decides, with the kinds of launch in `modes`. `launcher` starts it, and listens to the agents by
`connections`: `ranks` is what is known of them, and `deadlines` when they must end. `output` shows what they
write, `result` finds the exit status, and `result_pipe` tells it to the caller of a function.
"""
