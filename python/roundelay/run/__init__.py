"""`roundelayrun`: starts N ranks, with mpirun or without MPI, shows their output, and ends them together.

The way of a job: `arguments` reads the command line, `job` decides what is started, `launcher` runs that and
listens to the `agent` beside each rank, `verdict` says what became of it. What is started is `mpi`'s mpirun,
`starter` on one machine, or `several` with a `host_starter` on each host.
"""
