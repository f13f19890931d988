"""Loads the native parts, and says in a sentence why they do not load."""

from __future__ import annotations

import functools
import pathlib
import types
from typing import Any

from tf_byteps import errors

_FOLDER = pathlib.Path(__file__).parent


@functools.cache
def core() -> types.ModuleType:
    """The core's Python module. Needs no TensorFlow."""
    try:
        from tf_byteps import _core
    except ImportError as err:
        raise errors.BuildError(
            "tf_byteps' native core cannot be loaded; install the package again with "
            f"pip install . (the loader says: {err})"
        ) from err
    return _core


def check_tensorflow(found: str) -> None:
    """Raises unless this TensorFlow is the one that the ops were built for.

    Args:
        found: The version at run time, `tf.__version__`.
    """
    try:
        from tf_byteps import _build_info
    except ImportError as err:
        raise errors.BuildError(
            "tf_byteps is not built: install it with pip install ."
        ) from err
    built = _build_info.TENSORFLOW_VERSION
    if found.split(".")[:2] != built.split(".")[:2]:
        raise errors.BuildError(
            f"tf_byteps was built for TensorFlow {built}, and this is TensorFlow "
            f"{found}: install it again in this environment with "
            "pip install --force-reinstall --no-deps ."
        )


@functools.cache
def op_library() -> Any:
    """The generated Python functions of our TensorFlow operations."""
    import tensorflow as tf

    check_tensorflow(tf.__version__)
    core()
    try:
        return tf.load_op_library(str(_FOLDER / "_tf_ops.so"))
    except (tf.errors.NotFoundError, OSError) as err:
        raise errors.BuildError(
            "tf_byteps' TensorFlow operations cannot be loaded; install the package "
            f"again with pip install . (TensorFlow says: {err})"
        ) from err
