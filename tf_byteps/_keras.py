"""What Keras does otherwise under a `BytePSStrategy`; its private parts, only here.

Keras 3 computes some things on each replica that one process computes on the whole
batch, and its callbacks know nothing of workers. `install` replaces the functions
below, once for the process; each does what Keras does unless a model or replica of a
distributed `BytePSStrategy` is concerned. With `semantics="replica"` what is computed
stays Keras's own (docs/compatibility.md).
"""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import trainer as trainer_module
from keras.src.losses import loss as loss_module
from keras.src.saving import saving_lib
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.utils.python_utils import pythonify_logs

from tf_byteps import _batch, _extended, ops, runtime
from tf_byteps.errors import ArgumentError

# They write files or talk: worker 0 does that for all.
_CHIEF_ONLY = (
    keras.callbacks.CSVLogger,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.RemoteMonitor,
    keras.callbacks.TensorBoard,
)


@functools.cache
def install() -> None:
    """Replaces Keras's functions; nothing happens when called again."""
    for owner, function in (
        (loss_module, scale_loss_for_distribution),
        (loss_module, unscale_loss_for_distribution),
        (loss_module, reduce_weighted_values),
        (keras.optimizers.Optimizer, _backend_apply_gradients),
        (keras.optimizers.Optimizer, _clip_gradients),
        (keras.optimizers.Optimizer, _all_reduce_sum_gradients),
        (keras.optimizers.LossScaleOptimizer, check_finite),
        (keras.random.SeedGenerator, next_seed),
        (saving_lib, get_attr_skipset),
        (keras.callbacks.CallbackList, make_callback_list),
        (keras.callbacks.ModelCheckpoint, save_checkpoint),
        (keras.callbacks.BackupAndRestore, restore_backup),
        (keras.callbacks.BackupAndRestore, save_backup),
        (keras.callbacks.BackupAndRestore, delete_backup),
        (keras.Model, fit),
        (keras.Model, train_on_batch),
        (keras.Model, test_on_batch),
        (keras.Model, _maybe_symbolic_build),
        (keras.Model, _make_function),
        (keras.Model, get_metrics_result),
        (trainer_module, reduce_per_replica),
        (trainer_module, _multi_worker_concat),
    ):
        _replace(owner, function)


def _replacing(name: str) -> Callable:
    """Marks a function that takes what it replaces as its first argument."""

    def mark(function: Callable) -> Callable:
        function.replaces = name
        return function

    return mark


def _replace(owner: Any, function: Callable) -> None:
    name = getattr(function, "replaces", function.__name__)
    for holder in getattr(owner, "__mro__", (owner,)):
        if name in vars(holder):  # where Keras defines it, for all that inherit
            owner = holder
            break
    own = getattr(owner, name)

    @functools.wraps(own)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        return function(own, *args, **kwargs)

    setattr(owner, name, replacement)


# --- who asks --------------------------------------------------------------------


def _caller(function: str) -> Any:
    """The frame of a function of Keras that called what calls this, or None."""
    frame = sys._getframe(3)
    if frame.f_code.co_qualname.endswith(function) and frame.f_globals.get(
        "__name__", ""
    ).startswith("keras."):
        return frame
    return None


def asks_for_shapes() -> bool:
    """Whether the caller's caller is Keras, which builds a model by its first batch.

    It takes the mean over all workers of everything in the batch and looks at
    shapes and types only. Batches may differ in size and hold strings.
    """
    return _caller("_maybe_symbolic_build") is not None


def _is_ours(strategy: Any) -> bool:
    return isinstance(getattr(strategy, "extended", None), _extended.Extended)


def _job_of(strategy: Any) -> runtime.Job | None:
    """The job of a strategy of ours that has somebody to communicate with."""
    if _is_ours(strategy) and strategy.extended.job.distributed:
        return strategy.extended.job
    return None


def _job_in_replica() -> runtime.Job | None:
    if tf.distribute.in_cross_replica_context():
        return None
    return _job_of(tf.distribute.get_strategy())


def _job_of_model(model: Any) -> runtime.Job | None:
    return _job_of(getattr(model, "_distribute_strategy", None))


def _is_global(job: runtime.Job | None) -> bool:
    return job is not None and job.settings.semantics == "global"


# --- the loss, over the whole batch ----------------------------------------------


@contextlib.contextmanager
def step(strategy: tf.distribute.Strategy, fn: Any, args: Any) -> Iterator[None]:
    """Around `strategy.run`: of a Keras model's step the workers share the batch."""
    model = getattr(fn, "__self__", None)
    job = _job_of(strategy)
    is_step = isinstance(model, keras.Model) and fn.__name__ in (
        "train_step",
        "test_step",
    )
    if job is None or not is_step:
        yield
        return
    _check_metrics(model)
    if not _is_global(job):
        yield
        return
    with _batch.shared(_extended.local_value(args)):
        yield


def scale_loss_for_distribution(own: Callable, value: Any) -> Any:
    share = _batch.current()
    return own(value) if share is None else share.of_mean(value)


def unscale_loss_for_distribution(own: Callable, value: Any) -> Any:
    share = _batch.current()
    if share is None or share.is_even:  # the mean of the workers' means
        return own(value)
    # Trackers count by samples or by batches: the same on all workers suits both.
    (total,) = ops.push_pull_all([value], ops.Sum)
    return total


def reduce_weighted_values(
    own: Callable,
    values: Any,
    sample_weight: Any = None,
    mask: Any = None,
    reduction: str | None = "sum_over_batch_size",
    dtype: Any = None,
) -> Any:
    """Divides by what is valid in the whole batch, not in this replica's part."""
    by_weight = reduction == "mean_with_sample_weight"
    weighted = mask is not None or (by_weight and sample_weight is not None)
    values = tf.convert_to_tensor(values, dtype)
    if _batch.current() is None or reduction in (None, "none"):
        return own(values, sample_weight, mask, reduction, dtype)
    if values.shape == (0,):  # Keras would not reduce it
        return tf.reduce_sum(values)
    if reduction == "sum" or not weighted or values.shape.rank == 0:
        return own(values, sample_weight, mask, reduction, dtype)
    total = own(values, sample_weight, mask, "sum", dtype)
    if by_weight:
        weights = loss_module.apply_mask(sample_weight, mask, values.dtype, reduction)
        divisor = tf.reduce_sum(tf.cast(weights, values.dtype))
    else:
        valid = tf.reduce_sum(tf.cast(mask, values.dtype))
        values_per_entry = tf.math.divide_no_nan(
            tf.cast(tf.size(values), values.dtype),
            tf.cast(tf.size(mask), values.dtype),
        )
        divisor = valid * values_per_entry
    (divisor,) = ops.push_pull_all([divisor], ops.Sum)
    return tf.math.divide_no_nan(total, divisor)


# --- optimizers ------------------------------------------------------------------


def _backend_apply_gradients(
    own: Callable, self: Any, grads: Any, trainable_variables: Any
) -> None:
    """A worker without a sample has no gradient, which may have come out as NaN."""
    share = _batch.current()
    if share is not None:
        grads = [share.of_any(g) for g in grads]
    pairs = zip(grads, trainable_variables, strict=False)
    with ops.gradients_of(v for g, v in pairs if g is not None):
        own(self, grads, trainable_variables)


def _clip_gradients(own: Callable, self: Any, grads: Any) -> Any:
    """Clips what all replicas say together."""
    clips = self.clipnorm or self.global_clipnorm or self.clipvalue
    if not clips or not _is_global(_job_in_replica()):
        return own(self, grads)
    pairs = self._all_reduce_sum_gradients([(g, None) for g in grads])
    clipped = own(self, [g for g, _ in pairs])
    self.__dict__["_tf_byteps_combined"] = clipped  # untracked by Keras
    return clipped


def _all_reduce_sum_gradients(own: Callable, self: Any, grads_and_vars: Any) -> Any:
    grads_and_vars = list(grads_and_vars)
    combined = self.__dict__.pop("_tf_byteps_combined", None)
    given = [id(gradient) for gradient, _ in grads_and_vars]
    if combined is not None and list(map(id, combined)) == given:
        return grads_and_vars
    return own(self, grads_and_vars)


def check_finite(own: Callable, self: Any, grads: Any) -> Any:
    """All workers skip a step, or none.

    `LossScaleOptimizer` looks at its own replica's gradients before they are summed.
    With an infinity in one replica it would leave the others waiting for the sum.
    """
    finite = own(self, grads)
    job = _job_in_replica()
    if (share := _batch.current()) is not None:
        finite = tf.logical_or(finite, share.is_empty)
    if hasattr(self.inner_optimizer, "_tf_byteps"):  # a DistributedOptimizer
        job = runtime.current()
    if job is None or not job.distributed:
        return finite
    (everywhere,) = ops.push_pull_all([finite], ops.Min)  # "and" for bool
    return everywhere


# --- random numbers --------------------------------------------------------------


@_replacing("next")
def next_seed(own: Callable, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Replicas draw different numbers from the same state, such as dropout masks."""
    seed = own(self, *args, **kwargs)
    job = _job_in_replica()
    if not _is_global(job) or job.rank == 0:
        return seed
    return seed + tf.constant([1000003 * job.rank % 2**31, 0], seed.dtype)


# --- saving ----------------------------------------------------------------------


def get_attr_skipset(own: Callable, *args: Any, **kwargs: Any) -> Any:
    """Lets one worker save alone, also in the strategy's scope.

    Keras makes an object of each kind once, to look at its attributes.
    """
    with _extended.own_initial_values():
        return own(*args, **kwargs)


# --- callbacks -------------------------------------------------------------------


@_replacing("__init__")
def make_callback_list(
    own: Callable,
    self: Any,
    callbacks: Any = None,
    add_history: bool = False,
    add_progbar: bool = False,
    model: Any = None,
    **params: Any,
) -> None:
    """Leaves what writes files or prints to worker 0."""
    job = _job_of_model(model)
    if job is not None and job.rank != 0:
        add_progbar = False
        callbacks = [
            callback
            for callback in tf.nest.flatten(callbacks or [])
            if not isinstance(callback, _CHIEF_ONLY)
        ]
    own(self, callbacks, add_history, add_progbar, model, **params)


class _Unsaved:
    """A model for a callback that decides about saving, and must not save."""

    def __init__(self, model: keras.Model) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def save(self, *args: Any, **kwargs: Any) -> None:
        pass

    save_weights = save


@_replacing("_save_model")
def save_checkpoint(own: Callable, self: Any, *args: Any, **kwargs: Any) -> None:
    """Worker 0 saves; the others go on when the file is there.

    Who was given another path saves there as well.
    """
    model = self.model
    job = _job_of_model(model)
    if job is None:
        own(self, *args, **kwargs)
        return
    shared = ops.broadcast_object(self.filepath) == self.filepath
    if job.rank != 0:
        self._model = _Unsaved(model) if shared else model
        try:
            own(self, *args, **kwargs)
        finally:
            self._model = model
    _on_worker_0(job, "saving a checkpoint", lambda: own(self, *args, **kwargs))


@_replacing("on_train_begin")
def restore_backup(own: Callable, self: Any, logs: Any = None) -> None:
    """Worker 0 reads; the others, who may not see its files, get its state."""
    job = _job_of_model(self.model)
    if job is None:
        own(self, logs)
        return
    model, optimizer = self.model, self.model.optimizer
    _on_worker_0(job, "restoring a backup", lambda: own(self, logs))
    built = optimizer is not None and optimizer.built
    model._initial_epoch, built = ops.broadcast_object((model._initial_epoch, built))
    if built and not optimizer.built:
        optimizer.build(model.trainable_variables)
    # Also without an epoch: a kill may have left weights alone.
    variables = model.variables + (optimizer.variables if built else [])
    ops.broadcast_variables(variables)


def _on_worker_0(job: runtime.Job, what: str, act: Callable) -> None:
    """Acts on worker 0; all wait for it, and if it raises, all raise."""
    error = None
    if job.rank == 0:
        try:
            act()
        except Exception as err:
            error = err
    text = ops.broadcast_object(error and f"{type(error).__name__}: {error}")
    if error is not None:
        raise error
    if text is not None:
        raise ArgumentError(f"{what} failed on worker 0: {text}")


@_replacing("_save_model")
def save_backup(own: Callable, self: Any) -> None:
    job = _job_of_model(self.model)
    if job is None or job.rank == 0:
        own(self)


@_replacing("on_train_end")
def delete_backup(own: Callable, self: Any, logs: Any = None) -> None:
    job = _job_of_model(self.model)
    if job is None or job.rank == 0:
        own(self, logs)


# --- the trainer -----------------------------------------------------------------


def _maybe_symbolic_build(
    own: Callable, self: Any, iterator: Any = None, data_batch: Any = None
) -> None:
    """Builds a model by what the dataset says of its batches.

    Keras takes a first batch from it, and what a generator gave is gone.
    """
    if _is_ours(self._distribute_strategy) and iterator is not None:
        spec = _extended.local_spec(iterator._distributed_dataset.element_spec)
        if all(map(_is_known, tf.nest.flatten(spec))):
            with self.distribute_strategy.scope():
                self._symbolic_build(data_batch=spec)
            return
    own(self, iterator, data_batch)


def _is_known(spec: Any) -> bool:
    return (
        isinstance(spec, tf.TensorSpec)
        and spec.shape.rank is not None
        and spec.shape.rank > 0
        and spec.shape[1:].is_fully_defined()
    )


def _make_function(own: Callable, self: Any, step_function: Callable) -> Callable:
    """With `steps_per_execution`: so many steps in one graph.

    There a step begins on the layers whose gradients have come, while others are on
    their way. Keras makes each step a function, which waits for all of the last.
    """
    function = own(self, step_function)
    if _job_of_model(self) is None or self.run_eagerly or self.jit_compile:
        return function

    def run(data: Any) -> Any:
        return self._distribute_strategy.run(step_function, args=(data,))

    run = self._autoconvert_optionals(run)

    def steps(iterator: Any, count: int) -> Any:
        for _ in range(count):
            outputs = run(iterator.get_next())
        return trainer_module.reduce_per_replica(
            outputs, self._distribute_strategy, "auto"
        )

    steps = tf.function(steps, autograph=False, reduce_retracing=True)

    def unrolled(iterator: Any) -> Any:
        most = self.steps_per_execution
        count = None if most == 1 else _extended.take_steps(iterator, most)
        if count is None:
            return function(iterator)
        if count == 0:
            raise StopIteration
        if count == most:
            return steps(iterator, most)
        for _ in range(count):  # the rest
            outputs = steps(iterator, 1)
        return outputs

    def run_function(iterator: Any) -> Any:
        if not isinstance(iterator, tf.distribute.DistributedIterator):
            return function(iterator)
        with _batch.sizes_agreed():
            return unrolled(iterator)

    return run_function


def reduce_per_replica(
    own: Callable, values: Any, strategy: Any, reduction: str
) -> Any:
    """The logs of a step in one exchange."""
    are_scalars = all(getattr(v, "shape", None) == () for v in tf.nest.flatten(values))
    if _job_of(strategy) is None or reduction == "concat" or not are_scalars:
        return own(values, strategy, reduction)
    return strategy.reduce("MEAN", values, axis=None)


def _multi_worker_concat(own: Callable, v: Any, strategy: Any) -> Any:
    """A worker has one replica: what is gathered is in order."""
    if _job_of(strategy) is None:
        return own(v, strategy)
    return strategy.gather(v, axis=0)


def get_metrics_result(own: Callable, self: Any) -> Any:
    """Reads the counts of all workers in one exchange."""
    in_step = _job_in_replica() is not None or not tf.executing_eagerly()
    if _job_of_model(self) is None or in_step:
        return own(self)
    variables = [v._value for metric in self.metrics for v in metric.variables]
    with _extended.read_together(variables):
        return own(self)


def train_on_batch(own: Callable, self: Any, *args: Any, **kwargs: Any) -> Any:
    return _logs_of_all(own, self, *args, **kwargs)


def test_on_batch(own: Callable, self: Any, *args: Any, **kwargs: Any) -> Any:
    return _logs_of_all(own, self, *args, **kwargs)


def _logs_of_all(
    own: Callable, self: Any, *args: Any, return_dict: bool = False, **kwargs: Any
) -> Any:
    """Metrics over the whole batch, as `fit` has them, not a mean of replicas'."""
    if _job_of_model(self) is None:
        return own(self, *args, return_dict=return_dict, **kwargs)
    logs = own(self, *args, return_dict=True, **kwargs)
    logs = pythonify_logs(self._get_metrics_result_or_logs(logs))
    return logs if return_dict else self._flatten_metrics_in_order(logs)


# --- mistakes --------------------------------------------------------------------


def fit(own: Callable, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Raises on all workers if they do not ask for the same."""
    job = _job_of_model(self)
    if job is not None:
        names = own.__wrapped__.__code__.co_varnames[1:]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        _check_equal("fit", job, _describe(self, given))
    elif (
        self._distribute_strategy is None
        and (job := _extended.job_of_unused_strategy()) is not None
        and not hasattr(self.optimizer, "_tf_byteps")
    ):
        raise ArgumentError(
            "fit: the model was made outside of the strategy's scope and would train "
            f"on each of the {job.size} workers alone: make model, optimizer and "
            "metrics inside `with strategy.scope():`"
        )
    return own(self, *args, **kwargs)


def checked_dataset(strategy: tf.distribute.Strategy, dataset: Any) -> Any:
    """Raises if `fit`, `evaluate` or `predict` cannot share a dataset out rightly.

    Keras counts the steps by the dataset that it was given.

    Returns:
        The dataset. One that Keras made of arrays knows its length.
    """
    job = _job_of(strategy)
    frame = _caller("TFEpochIterator.__init__")
    if job is None or frame is None:
        return dataset
    adapter = frame.f_locals["self"].data_adapter
    if isinstance(adapter, ArrayDataAdapter):
        assertion = tf.data.experimental.assert_cardinality(adapter.num_batches)
        dataset = dataset.apply(assertion)
    length = int(dataset.cardinality())
    policy = dataset.options().experimental_distribute.auto_shard_policy
    steps = frame.f_locals["self"].steps_per_epoch
    if (
        policy == tf.data.experimental.AutoShardPolicy.OFF
        and length >= 0
        and steps is None
    ):
        raise ArgumentError(
            "AutoShardPolicy.OFF gives every worker the whole dataset, in batches "
            f"{job.size} times smaller, and Keras would stop after {length} of them: "
            "leave the policy away (every worker takes its share), or make each "
            "worker's own dataset with strategy.distribute_datasets_from_function"
        )
    _check_equal("a dataset for Keras", job, {"its number of batches": length})
    return dataset


def _describe(model: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What the workers must have in common to call `fit`."""

    def shapes(value: Any) -> Any:
        return [
            tuple(v.shape) if hasattr(v, "shape") else type(v).__name__
            for v in tf.nest.flatten(value)
            if v is not None
        ]

    described = {
        "the model's variables": [
            (tuple(v.shape), str(v.dtype)) for v in model.variables
        ],
        "x": shapes(given.get("x")),
        "y": shapes(given.get("y")),
        "sample_weight": shapes(given.get("sample_weight")),
        "validation_data": shapes(given.get("validation_data")),
        "option semantics": model._distribute_strategy.extended.job.settings.semantics,
    }
    for name, default in (
        ("batch_size", None),
        ("epochs", 1),
        ("initial_epoch", 0),
        ("steps_per_epoch", None),
        ("validation_split", 0.0),
        ("validation_steps", None),
        ("validation_batch_size", None),
        ("validation_freq", 1),
        ("class_weight", None),
    ):
        described[name] = given.get(name, default)
    return described


def _check_equal(call: str, job: runtime.Job, own: dict[str, Any]) -> None:
    everybodys = ops.allgather_object({k: repr(v) for k, v in own.items()})
    for rank, theirs in enumerate(everybodys):
        for name, value in everybodys[0].items():
            if theirs[name] != value:
                raise ArgumentError(
                    f"{call}: all workers must be given the same. Received: {name} is "
                    f"{value} on worker 0 and {theirs[name]} on worker {rank}"
                )


_checked: weakref.WeakSet = weakref.WeakSet()


def _check_metrics(model: keras.Model) -> None:
    for metric in model.metrics:
        if metric in _checked:
            continue
        for variable in metric.variables:
            if not _extended.is_distributed(variable._value):
                raise ArgumentError(
                    f'metric "{metric.name}" was made outside of the strategy\'s '
                    "scope and would count this worker's samples only: make it "
                    "inside `with strategy.scope():`"
                )
        if metric.variables:
            _checked.add(metric)
