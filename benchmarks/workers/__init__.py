"""What the ranks of a measurement run: each module is started on all of them by launch.run_ranks."""
