"""`roundelay.run(func, ...)`: a Python function as the program of a job, its results as a list.

The way of a call: `api` turns its arguments into `roundelayrun`'s flags, `payload` packs the function into an
anonymous file, `job` starts a launcher (`relay`: `roundelayrun` with a function for a program) and shows what
it prints, `worker` runs the function as each rank, `outcome` makes values or an exception of what came back.

The function never travels over a connection: the launcher inherits the file, and each agent opens it through
/proc, which the kernel allows to processes of the same user only. Results go with the ranks' output, from
agent to launcher, and from there through a pipe that the launcher inherited.
"""
