"""Not there: importing it raises ImportError."""

raise ImportError(
    "Roundelay has no horovod.ray: start ranks with roundelayrun, mpirun, torchrun, srun or horovod.run(), "
    "those of an elastic job with roundelayrun --min-np or horovod.run(min_np=...)"
)
