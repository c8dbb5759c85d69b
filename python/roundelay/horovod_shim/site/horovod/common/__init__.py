"""The modules that Horovod's frameworks have in common."""
