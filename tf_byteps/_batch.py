"""How much of the global batch is this worker's, during a step of Keras.

Workers may hold unequal parts of a batch (often of the last one) or none of it. What
one process computes is the mean over all samples, so a worker's mean counts by its
number of samples.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tf_byteps import ops

_steps = threading.local()


class Share:
    """This worker's part of one batch.

    Attributes:
        size: Its samples, a float32 scalar.
        total: All workers' samples, a float32 scalar.
    """

    def __init__(self, size: tf.Tensor) -> None:
        self.size = tf.cast(size, tf.float32)
        (self.total,) = ops.push_pull_all([self.size], ops.Sum)
        # A number that the trace knows is that of all its batches.
        known = tf.get_static_value(size)
        self._may_be_empty = known is None or int(known) == 0

    @property
    def is_empty(self) -> tf.Tensor:
        """Whether this worker has no sample."""
        return tf.equal(self.size, 0)

    def of_mean(self, value: tf.Tensor) -> tf.Tensor:
        """What this worker's mean adds to the mean over all samples."""
        share = tf.math.divide_no_nan(self.size, self.total)
        return value * tf.cast(share, value.dtype)

    def mean(self, value: tf.Tensor) -> tf.Tensor:
        """The mean over all samples, from each worker's."""
        (total,) = ops.push_pull_all([self.of_any(self.of_mean(value))], ops.Sum)
        return total

    def of_any(self, value: tf.Tensor) -> tf.Tensor:
        """The value, or 0 if there is no sample: what was computed may be NaN then."""
        if not self._may_be_empty or isinstance(value, tf.IndexedSlices):
            return value
        present = tf.cast(tf.logical_not(self.is_empty), value.dtype)
        return tf.math.multiply_no_nan(value, present)


def current() -> Share | None:
    """This worker's share, during a step that shares a batch."""
    return getattr(_steps, "current", None)


@contextlib.contextmanager
def shared(value: Any) -> Iterator[None]:
    """During the block the workers share a batch; `value` is this worker's part.

    Args:
        value: A nested structure of tensors, samples first. Without any tensor that
            has samples nothing is shared.
    """
    size = _num_samples(value)
    outer = current()
    _steps.current = None if size is None else Share(size)
    try:
        yield
    finally:
        _steps.current = outer


def _num_samples(value: Any) -> tf.Tensor | None:
    for part in tf.nest.flatten(value):
        if isinstance(part, tf.RaggedTensor):
            return part.nrows()
        if isinstance(part, tf.SparseTensor):
            return part.dense_shape[0]
        if tf.is_tensor(part) or hasattr(part, "shape"):
            return tf.shape(part)[0] if len(part.shape) > 0 else None
    return None
