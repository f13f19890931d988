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

from tf_byteps import ops, runtime

_steps = threading.local()


class Share:
    """This worker's part of one batch.

    Attributes:
        size: Its samples, a float32 scalar.
        total: All workers' samples, a float32 scalar.
        is_even: Whether the trace knows that all workers have as many.
    """

    def __init__(self, size: tf.Tensor, agreed: bool) -> None:
        # A number that the trace knows is that of all its batches.
        known = tf.get_static_value(size)
        self._may_be_empty = known is None or int(known) == 0
        self.is_even = agreed and not self._may_be_empty
        self.size = tf.cast(size, tf.float32)
        if self.is_even:
            workers = runtime.require("a step").size
            self.total = tf.constant(float(known) * workers)
        else:
            (self.total,) = ops.push_pull_all([self.size], ops.Sum)
        self._graph = _graph()
        self._written: dict[int, tf.Variable] = {}

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

    def write(self, variable: tf.Variable) -> bool:
        """Whether `settle` will give the variable, which is written now, its mean.

        Not in a function or branch of its own, which may run or be traced without
        the rest of the step.
        """
        if _graph() is not self._graph:
            return False
        self._written[id(variable)] = variable
        return True

    def settle(self) -> None:
        """Gives what was written in the step the mean over all samples."""
        variables = list(self._written.values())
        values = [self.of_any(self.of_mean(v.read_value())) for v in variables]
        means = ops.push_pull_all(values, ops.Sum)
        for variable, mean in zip(variables, means, strict=True):
            variable.assign(mean)

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
def sizes_agreed() -> Iterator[None]:
    """What is traced in the block takes its batches from a distributed dataset.

    Then a size that the trace knows is that of all workers. A function's arguments,
    and eager tensors, tell the size of this worker's part.
    """
    outer = getattr(_steps, "agreed", False)
    _steps.agreed = True
    try:
        yield
    finally:
        _steps.agreed = outer


@contextlib.contextmanager
def shared(value: Any) -> Iterator[None]:
    """During the block the workers share a batch; `value` is this worker's part.

    Args:
        value: A nested structure of tensors, samples first. Without any tensor that
            has samples nothing is shared.
    """
    size = _num_samples(value)
    outer = current()
    agreed = getattr(_steps, "agreed", False)
    share = _steps.current = None if size is None else Share(size, agreed)
    try:
        yield
    finally:
        _steps.current = outer
    if share is not None:
        share.settle()


def static_size(spec: Any) -> int:
    """The number of samples that a structure of specs tells; -1: none."""
    for part in tf.nest.flatten(spec):
        shape = getattr(part, "shape", None)
        if shape is not None and shape.rank:
            return -1 if shape[0] is None else int(shape[0])
    return -1


def _graph() -> Any:
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def _num_samples(value: Any) -> tf.Tensor | None:
    for part in tf.nest.flatten(value):
        if isinstance(part, tf.RaggedTensor):
            return part.nrows()
        if isinstance(part, tf.SparseTensor):
            return part.dense_shape[0]
        if tf.is_tensor(part) or hasattr(part, "shape"):
            if len(part.shape) == 0:
                return None
            known = part.shape[0]
            return tf.shape(part)[0] if known is None else tf.constant(known)
    return None
