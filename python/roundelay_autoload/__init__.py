"""Makes torch.distributed know the backend "roundelay", before anybody needs it.

PyTorch calls `register` in every `import torch` of an environment that has Roundelay (entry point group
``torch.backends``; ``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` turns that off). So this package imports nothing of
Roundelay's until the first process group is made.
"""

from __future__ import annotations

from typing import Any

NAME = "roundelay"


def register() -> None:
    """Registers the backend, once. Does nothing if this torch has no torch.distributed. Never raises."""
    try:
        import torch.distributed as dist

        if not dist.is_available() or NAME in dist.Backend.backend_list:
            return
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    except Exception:  # a broken backend must not break `import torch`
        pass


def _create(options: Any, _backend_options: Any) -> Any:
    from roundelay.torch._internal import process_group

    return process_group.create(options)
