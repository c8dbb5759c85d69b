"""`roundelay doctor`: checks the installation, from Python to two ranks that reduce, and names the cures."""
