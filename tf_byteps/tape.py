"""`DistributedGradientTape`: gradients of all workers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_byteps import compression as compression_lib
from tf_byteps import ops
from tf_byteps.errors import ArgumentError


class DistributedGradientTape(tf.GradientTape):
    """A `tf.GradientTape` whose `gradient` combines those of all workers.

        with tf.GradientTape() as tape:
            loss = ...
        tape = tf_byteps.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)

    It records like the tape that it is made from, and may be made before or after
    the recording. `jacobian` and `batch_jacobian` are this worker's.
    """

    def __init__(
        self,
        gradtape: tf.GradientTape,
        compression: Any = None,
        sparse_as_dense: bool = False,
        op: ops.ReduceOp = ops.Average,
    ) -> None:
        """Makes a tape from a tape.

        Args:
            gradtape: What records.
            compression: A compressor, such as `Compression.fp16`; None for none.
            sparse_as_dense: Whether `tf.IndexedSlices` are combined as dense
                tensors.
            op: `Average` or `Sum`.
        """
        if not isinstance(gradtape, tf.GradientTape):
            raise ArgumentError(
                "DistributedGradientTape: expected a tf.GradientTape. "
                f"Received: {gradtape!r}"
            )
        compression = compression_lib.checked(compression)
        if op not in (ops.Average, ops.Sum):
            raise ArgumentError(
                "DistributedGradientTape: op must be tf_byteps.Average or Sum. "
                f"Received: {op!r}"
            )
        # One recording, two views of it.
        self.__dict__ = gradtape.__dict__
        self._tf_byteps = (op, sparse_as_dense, compression)

    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        """As `tf.GradientTape.gradient`, combined over all workers."""
        gradients = super().gradient(target, sources, *args, **kwargs)
        flat = tf.nest.flatten(gradients)
        pairs = zip(flat, tf.nest.flatten(sources), strict=False)
        with ops.gradients_of(v for g, v in pairs if g is not None):
            combined = ops.combine_gradients(flat, *self._tf_byteps)
        return tf.nest.pack_sequence_as(gradients, combined)

    def jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """As `tf.GradientTape.jacobian`, of this worker."""
        return self._plain().jacobian(*args, **kwargs)

    def batch_jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """As `tf.GradientTape.batch_jacobian`, of this worker."""
        return self._plain().batch_jacobian(*args, **kwargs)

    def _plain(self) -> tf.GradientTape:
        tape = tf.GradientTape.__new__(tf.GradientTape)
        tape.__dict__ = self.__dict__
        return tape
