"""Not there: importing it raises ImportError."""

raise ImportError(
    "Roundelay has no horovod.spark: start ranks with roundelayrun, mpirun, torchrun, srun or horovod.run()"
)
