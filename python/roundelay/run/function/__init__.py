"""`roundelay.run(func, ...)`: a Python function as the program of a job, its results as a list.

A call uses these modules: `api` has the arguments, and `options` turns them into `roundelayrun`'s flags.
`payload` packs the function into an anonymous file (pickled `by_value`), `launcher_process` starts a launcher
(`start`) and shows its output, `worker` runs the function as each rank, the launcher's `result_pipe` sends
its reply back, and `outcome` returns values or an exception.

The function never travels over a connection: the launcher inherits the file, and each agent opens it through
/proc, which the kernel allows to processes of the same user only. Results go with the ranks' output, from
agent to launcher, and from there through a pipe that the launcher inherited.
"""
