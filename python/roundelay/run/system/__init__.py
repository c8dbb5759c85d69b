"""What the processes of a job ask of the system: signals, processes, interfaces, limits, open files."""
