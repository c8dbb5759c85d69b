"""The process in mpirun's place: it starts the agents of a job without MPI.

`single_host` starts those of this machine. `several_hosts` runs `on_host` on each host, here or over ssh.
`local_ranks` starts and ends the agents of one host.
"""
