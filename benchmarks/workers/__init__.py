"""The programs of a measurement's ranks. launch.run_ranks starts each module on all ranks."""
