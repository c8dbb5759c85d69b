"""The exceptions a user meets.

* ``ValueError``: the call is wrong and can be corrected; data is untouched.
* ``HorovodInternalError`` (a RuntimeError): ranks disagree (dtype, shape, op, root); the job may go on;
  or a peer failed or left, or a deadline passed. The same text on every rank, naming the first cause.
* ``RuntimeError``: something that is needed is not there.
* ``NotInThisVersionError``: a name of Horovod's interface that this version does not have yet.
"""

from __future__ import annotations

import torch  # noqa: F401  the core links to torch's libraries: they must be loaded first

from roundelay._core import HorovodInternalError

__all__ = ["HorovodInternalError", "NotInThisVersionError"]


class NotInThisVersionError(NotImplementedError, AttributeError):
    """Also an AttributeError, so that ``hasattr`` and ``getattr(..., default)`` still probe for features."""
