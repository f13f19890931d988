"""`DistributedOptimizer`: a Keras optimizer that combines gradients first."""

from __future__ import annotations

import functools
from typing import Any

import keras
import tensorflow as tf

from tf_byteps import _extended, ops, runtime
from tf_byteps.errors import ArgumentError


def DistributedOptimizer(
    optimizer: keras.optimizers.Optimizer,
    name: str | None = None,
    compression: None = None,
    sparse_as_dense: bool = False,
    op: ops.ReduceOp = ops.Average,
) -> keras.optimizers.Optimizer:
    """Returns the optimizer, which from now on applies all workers' gradients.

    For scripts without a strategy: every worker trains on data of its own, and the
    gradients of all are averaged before clipping, weight decay and the update. When
    it is built, before the first update, it gives the trainable variables worker
    0's values. (In a training step that runs eagerly that is too late for the
    first gradients: there call `broadcast_variables` on the model's before.)

    Args:
        optimizer: Any Keras 3 optimizer, not built yet. Itself is changed and
            returned; it stays an instance of its class.
        name: None keeps the optimizer's name.
        compression: None; kept for scripts that pass it.
        sparse_as_dense: Whether gradients of embeddings (`tf.IndexedSlices`) are
            combined as dense tensors.
        op: `Average` or `Sum`.

    Raises:
        ArgumentError: it is no Keras optimizer, or belongs to a strategy, where
            gradients are combined anyway.
        NotInitializedError: before `init()`, when it is first used.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ArgumentError(
            "DistributedOptimizer: expected a keras.optimizers.Optimizer. "
            f"Received: {optimizer!r}"
        )
    if isinstance(optimizer, _Distributed):
        raise ArgumentError(
            "DistributedOptimizer: the optimizer is one already, its gradients would "
            "be combined twice"
        )
    if optimizer.built:
        raise ArgumentError(
            "DistributedOptimizer: expected an optimizer that was not used yet; make "
            "a new one, or keras.optimizers.deserialize(keras.optimizers.serialize(it))"
        )
    if isinstance(
        tf.distribute.get_strategy(), tf.distribute.MultiWorkerMirroredStrategy
    ):
        raise ArgumentError(
            "DistributedOptimizer: inside a strategy's scope gradients are combined "
            "anyway; use the plain optimizer there"
        )
    ops.check_compression(compression)
    if op not in (ops.Average, ops.Sum):
        raise ArgumentError(
            "DistributedOptimizer: op must be tf_byteps.Average or Sum. "
            f"Received: {op!r}"
        )
    _extended.agree_on_finite_gradients()
    _share_traced_initial_values()
    optimizer.__class__ = _distributed_class(type(optimizer))
    optimizer._tf_byteps = (op, sparse_as_dense)
    if name is not None:
        optimizer.name = name
    return optimizer


class _Distributed:
    """What a distributed optimizer does before its own class's part."""

    _tf_byteps: tuple[ops.ReduceOp, bool]

    def build(self, variables: Any) -> None:
        super().build(variables)
        with tf.init_scope():
            # The others get worker 0's values when they are initialised.
            ops.broadcast_variables([v for v in variables if _is_initialized(v)])

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        op, sparse_as_dense = self._tf_byteps
        grads = ops.combine_gradients(grads, op, sparse_as_dense)
        super().apply(grads, trainable_variables)


@functools.cache
def _distributed_class(base: type) -> type:
    # Saved models name the class that everybody has.
    return type(base.__name__, (_Distributed, base), {"__module__": base.__module__})


def _is_initialized(variable: Any) -> bool:
    if isinstance(variable, keras.Variable):
        variable = variable.value
    return bool(variable.is_initialized())


_entered: list = []


def _share_traced_initial_values() -> None:
    """Lets weights that are made while a function is traced start as worker 0's.

    Keras makes the weights of a model that was not built during the trace of its
    first step. TensorFlow initialises them after the trace and then runs the step,
    so what an optimizer does in the trace comes too late for the first gradients.
    """
    if _entered or tf.distribute.has_strategy():  # which builds models before
        return

    def creator(next_creator: Any, **kwargs: Any) -> tf.Variable:
        job = runtime.current()
        if (
            job is not None
            and job.distributed
            and kwargs.get("trainable")
            and not tf.executing_eagerly()
        ):
            own = kwargs["initial_value"]
            kwargs["initial_value"] = lambda: ops.broadcast(
                own() if callable(own) else own
            )
        return next_creator(**kwargs)

    scope = tf.variable_creator_scope(creator)
    scope.__enter__()
    _entered.append(scope)
