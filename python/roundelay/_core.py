"""Takes the place of itself: the core that was compiled against the PyTorch installed here (_core.pyi)."""

import sys

from roundelay._internal import torch_modules

sys.modules[__name__] = torch_modules.load(__name__)
