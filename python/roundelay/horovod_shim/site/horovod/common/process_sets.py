"""Process sets, under Horovod's name for their module."""

from roundelay.torch.process_sets import *  # noqa: F403
