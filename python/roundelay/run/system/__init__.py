"""What a job's processes ask of the system: signals, processes, hosts, interfaces, limits, open files."""
