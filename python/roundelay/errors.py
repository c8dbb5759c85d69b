"""The exceptions that users see.

* ``ValueError``: the call is wrong and can be corrected; data is untouched.
* ``HorovodInternalError`` (a RuntimeError): a peer failed, left or did not take part, or a deadline passed.
  Every rank raises it with the same text, which names the first cause.
* ``MismatchError`` (a HorovodInternalError): ranks disagree (dtype, shape, op, root); the job may go on.
* ``RuntimeError``: something that is needed is not there.
* ``NotInThisVersionError``: this version does not have a name of Horovod's interface yet.
"""

from __future__ import annotations

from roundelay._core import HorovodInternalError, MismatchError

__all__ = ["HorovodInternalError", "MismatchError", "NotInThisVersionError"]


class NotInThisVersionError(NotImplementedError, AttributeError):
    """Raised by names that are absent. As AttributeErrors they let ``hasattr`` probe for features."""
