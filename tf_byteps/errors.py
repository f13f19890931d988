"""The errors of tf_byteps. Each says what was expected and what was received.

Inside TensorFlow functions and eager operations the core's errors surface as
the matching `tf.errors.*`, with the same text.
"""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "BuildError",
    "ClusterError",
    "ConfigError",
    "Error",
    "NotInitializedError",
    "StartError",
]


class Error(Exception):
    """The base of all errors of tf_byteps."""


class ConfigError(Error, ValueError):
    """An option or a TF_BYTEPS_* variable is unknown or out of range."""


class ClusterError(Error, ValueError):
    """The cluster description is wrong."""


class ArgumentError(Error, ValueError):
    """A function was given what it does not take."""


class NotInitializedError(Error, RuntimeError):
    """A function needs `init()` or a strategy first."""


class StartError(Error, RuntimeError):
    """The job did not come together."""


class BuildError(Error, ImportError):
    """The native parts do not fit this environment."""
