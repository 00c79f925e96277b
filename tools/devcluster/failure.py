"""The exception of this package."""

from tools.bootstrap.failure import BootstrapError


class DevClusterError(BootstrapError):
    """What is wrong and what to do about it, in one message. Shown without a traceback."""
