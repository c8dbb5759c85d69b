"""What this build can use, as `horovodrun --check-build` shows it."""

from __future__ import annotations

from roundelay import __version__
from roundelay._internal import backend, mpi_modules, torch_modules


def check_build() -> str:
    """Returns the text of `horovodrun --check-build` for this build."""
    mpi_built, gloo_built = bool(mpi_modules.built()), backend.c10d_module() is not None

    def section(title: str, rows: dict[str, bool]) -> str:
        lines = [f"    [{'X' if on else ' '}] {name}" for name, on in rows.items()]
        return "\n".join([f"Available {title}:", *lines])

    torch_built = torch_modules.folder() is not None
    return "\n\n".join(
        [
            f"Roundelay v{__version__}:",
            section("Frameworks", {"TensorFlow": False, "PyTorch": torch_built, "MXNet": False}),
            section("Controllers", {"MPI": mpi_built, "Gloo": gloo_built}),
            section(
                "Tensor Operations",
                {
                    "NCCL": backend.cuda_module() is not None,
                    "DDL": False,
                    "CCL": False,
                    "MPI": mpi_built,
                    "Gloo": gloo_built,
                },
            ),
        ]
    )
