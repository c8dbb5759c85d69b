"""`roundelayrun`: starts N ranks through the MPI's mpirun, shows their output, and ends them together.

The way of a job: `arguments` reads the command line, `mpi` finds mpirun and writes its command line,
`launcher` runs it and listens to the `agent` beside each rank, `verdict` says what became of the job.
"""
