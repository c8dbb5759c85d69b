"""The backend "roundelay" of ``torch.distributed``, for DDP, FSDP2, DTensor and all that stands on it.

``torch.distributed.init_process_group("roundelay")`` needs no import of this module where packages may
register backends with PyTorch, which is the default. Import it where they may not, as with
``TORCH_DEVICE_BACKEND_AUTOLOAD=0``.
"""

from __future__ import annotations

from roundelay_autoload import NAME, register

__all__ = ["NAME", "register"]

register()
