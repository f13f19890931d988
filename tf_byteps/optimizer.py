"""`DistributedOptimizer`: a Keras optimizer that combines gradients first."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import keras
import tensorflow as tf

from tf_byteps import _keras, ops, runtime
from tf_byteps import compression as compression_lib
from tf_byteps.errors import ArgumentError


@dataclasses.dataclass(frozen=True)
class _Combining:
    """How an optimizer combines gradients; see DistributedOptimizer."""

    op: ops.ReduceOp
    sparse_as_dense: bool
    compression: Any
    groups: Any
    passes: int  # whose sum is applied, where Keras takes the mean


def DistributedOptimizer(
    optimizer: keras.optimizers.Optimizer,
    name: str | None = None,
    compression: Any = None,
    sparse_as_dense: bool = False,
    op: ops.ReduceOp = ops.Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: int | list | None = None,
) -> keras.optimizers.Optimizer:
    """Returns the optimizer, which from now on applies all workers' gradients.

    For scripts without a strategy: every worker trains on data of its own, and the
    gradients of all are averaged before clipping, weight decay and the update. When
    it is built, before the first update, it gives the trainable variables worker
    0's values. (In a training step that runs eagerly that is too late for the
    first gradients: there call `broadcast_variables` on the model's before.) One
    that is built already, as of a loaded model, gives them and its own state at once.

    Args:
        optimizer: Any Keras 3 optimizer. Itself is changed and returned; it stays
            an instance of its class. Of a `LossScaleOptimizer` the inner one is.
        name: None keeps the optimizer's name.
        compression: A compressor, such as `Compression.fp16`; None for none.
        sparse_as_dense: Whether gradients of embeddings (`tf.IndexedSlices`) are
            combined as dense tensors.
        op: `Average` or `Sum`.
        backward_passes_per_step: Gradients of so many calls are added up on the
            worker before they are combined and applied.
        average_aggregated_gradients: Whether their mean is applied, not their sum.
        groups: Gradients of a group travel as one tensor. A number of groups of about
            the same length, or lists of variables; None leaves each alone.

    Raises:
        ArgumentError: it is no Keras optimizer, or belongs to a strategy, where
            gradients are combined anyway, or an argument has a wrong value.
        NotInitializedError: before `init()`, when it is first used.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ArgumentError(
            "DistributedOptimizer: expected a keras.optimizers.Optimizer. "
            f"Received: {optimizer!r}"
        )
    if isinstance(
        tf.distribute.get_strategy(), tf.distribute.MultiWorkerMirroredStrategy
    ):
        raise ArgumentError(
            "DistributedOptimizer: inside a strategy's scope gradients are combined "
            "anyway; use the plain optimizer there"
        )
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if isinstance(inner, _Distributed):
        raise ArgumentError(
            "DistributedOptimizer: the optimizer is one already, its gradients would "
            "be combined twice"
        )
    if op not in (ops.Average, ops.Sum):
        raise ArgumentError(
            "DistributedOptimizer: op must be tf_byteps.Average or Sum. "
            f"Received: {op!r}"
        )
    compression = compression_lib.checked(compression)
    _check_groups(groups)
    _accumulate(inner, backward_passes_per_step)
    passes = 1 if average_aggregated_gradients else backward_passes_per_step
    inner._tf_byteps = _Combining(op, sparse_as_dense, compression, groups, passes)
    _keras.install()
    _share_traced_initial_values()
    inner.__class__ = _distributed_class(type(inner))
    if inner.built:
        ops.broadcast_variables([*inner._trainable_variables, *optimizer.variables])
    if name is not None:
        optimizer.name = name
    return optimizer


def load_model(
    filepath: Any, custom_objects: dict | None = None, **arguments: Any
) -> keras.Model:
    """As `keras.models.load_model`, with a `DistributedOptimizer`.

    Args:
        filepath: A `.keras` file, which every worker can read.
        custom_objects: As for `keras.models.load_model`.
        arguments: As for `DistributedOptimizer`.
    """
    model = keras.models.load_model(filepath, custom_objects)
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, **arguments)
    return model


def _accumulate(optimizer: keras.optimizers.Optimizer, passes: Any) -> None:
    """Lets Keras add up the gradients of several passes."""
    if not isinstance(passes, int) or passes < 1:
        raise ArgumentError(
            "DistributedOptimizer: backward_passes_per_step must be an integer from 1. "
            f"Received: {passes!r}"
        )
    if passes == 1:
        return
    if (
        optimizer.built
        or optimizer.gradient_accumulation_steps
        or isinstance(optimizer, keras.optimizers.MultiOptimizer)
    ):
        raise ArgumentError(
            "DistributedOptimizer: backward_passes_per_step needs an optimizer that "
            "was not used yet, has no gradient_accumulation_steps of its own, and is "
            f"no MultiOptimizer. Received: {optimizer!r}"
        )
    optimizer.gradient_accumulation_steps = passes


def _check_groups(groups: Any) -> None:
    good = groups is None or (
        groups > 0
        if isinstance(groups, int)
        else isinstance(groups, (list, tuple))
        and all(isinstance(group, (list, tuple)) for group in groups)
    )
    if not good:
        raise ArgumentError(
            "DistributedOptimizer: groups must be None, a number of groups, or a list "
            f"of lists of variables. Received: {groups!r}"
        )


class _Distributed:
    """What a distributed optimizer does before its own class's part."""

    _tf_byteps: _Combining

    def build(self, variables: Any) -> None:
        super().build(variables)
        with tf.init_scope():
            # The others get worker 0's values when they are initialised.
            ops.broadcast_variables([v for v in variables if _is_initialized(v)])

    def _backend_apply_gradients(self, grads: Any, trainable_variables: Any) -> None:
        # Not as an attribute, which Keras would save.
        self.__dict__["_tf_byteps_variables"] = trainable_variables
        super()._backend_apply_gradients(grads, trainable_variables)

    def _clip_gradients(self, grads: Any) -> Any:
        # Once for each update, after passes are added up.
        variables = self.__dict__.pop("_tf_byteps_variables", grads)
        grads = _combined(self._tf_byteps, grads, variables)
        return super()._clip_gradients(grads)


class _DistributedMulti(_Distributed):
    """For an optimizer that hands gradients to others, which it may not have yet."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        variables = trainable_variables or self._trainable_variables
        grads = _combined(self._tf_byteps, grads, variables)
        super().apply(grads, trainable_variables)


def _combined(how: _Combining, grads: Any, variables: Any) -> list:
    groups = _positions(how.groups, variables)
    grads = ops.combine_gradients(
        grads, how.op, how.sparse_as_dense, how.compression, groups
    )
    if how.passes > 1:
        grads = [g if g is None else g * how.passes for g in grads]
    return grads


def _positions(groups: Any, variables: Any) -> list[list[int]]:
    """Each group's positions among the variables."""
    variables = list(variables)
    if groups is None:
        return []
    if isinstance(groups, int):
        length = -(-len(variables) // groups)
        everything = list(range(len(variables)))
        return [everything[i : i + length] for i in range(0, len(variables), length)]
    place = {id(v): i for i, v in enumerate(variables)}
    return [[place[id(v)] for v in group if id(v) in place] for group in groups]


@functools.cache
def _distributed_class(base: type) -> type:
    multi = issubclass(base, keras.optimizers.MultiOptimizer)
    mixin = _DistributedMulti if multi else _Distributed
    # Saved models name the class that everybody has.
    return type(base.__name__, (mixin, base), {"__module__": base.__module__})


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
