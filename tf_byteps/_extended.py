"""What needs TensorFlow's private parts; nothing else in the package does.

`Extended` is the inner half of a `tf.distribute.Strategy`: one replica in this
process, every exchange with the other workers by `tf_byteps.ops`.

It stands on `MirroredExtended` for variables and datasets, with one local device.
The replica function runs inline, in this thread and in a plain `ReplicaContext`:
so `merge_call` is legal inside `tf.cond` and `tf.while_loop`, which Keras needs for
gradient accumulation, moving averages and `steps_per_execution`.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import (
    collective_all_reduce_strategy,
    device_util,
    distribute_lib,
    distribute_utils,
    input_util,
    mirrored_strategy,
    numpy_dataset,
    values,
)
from tensorflow.python.eager import context
from tensorflow.python.ops import control_flow_util
from tensorflow.python.trackable import base as trackable

from tf_byteps import _batch, ops, runtime
from tf_byteps.errors import ArgumentError

_REDUCE_OPS = {
    tf.distribute.ReduceOp.SUM: ops.Sum,
    tf.distribute.ReduceOp.MEAN: ops.Average,
}
_MultiWorker = collective_all_reduce_strategy.CollectiveAllReduceExtended


def is_compiled_by_xla(graph: Any) -> bool:
    """Whether the function that is being traced into `graph` goes to XLA."""
    return control_flow_util.GraphOrParentsInXlaContext(graph)


def is_initialized() -> bool:
    """Whether TensorFlow has chosen its devices already."""
    return context.context()._initialized


def has_seed() -> bool:
    """Whether somebody called `tf.random.set_seed`."""
    return context.global_seed() is not None


def is_distributed(variable: Any) -> bool:
    """Whether a variable was made in a strategy's scope."""
    return isinstance(variable, values.DistributedVariable)


def local_value(value: Any) -> Any:
    """This replica's part of a structure whose values may be distributed."""

    def local(v: Any) -> Any:
        return v.values[0] if isinstance(v, values.DistributedValues) else v

    return tf.nest.map_structure(local, value)


def local_spec(spec: Any) -> Any:
    """The same for the specs of values."""

    def local(s: Any) -> Any:
        return s._value_specs[0] if isinstance(s, values.PerReplicaSpec) else s

    return tf.nest.map_structure(local, spec)


_made: weakref.WeakSet = weakref.WeakSet()


def job_of_unused_strategy() -> runtime.Job | None:
    """The job, if a strategy was made, but nothing yet in the scope of any."""
    jobs = [extended.job for extended in _made if extended.job.distributed]
    if not jobs or any(extended.in_use for extended in _made):
        return None
    return jobs[0]


_values = threading.local()


@contextlib.contextmanager
def own_initial_values() -> Iterator[None]:
    """Variables that are made in the block are this worker's matter alone."""
    _values.are_own = True
    try:
        yield
    finally:
        _values.are_own = False


@contextlib.contextmanager
def read_together(variables: list) -> Iterator[None]:
    """Sums counts of all workers, such as those of metrics, in one exchange."""
    counts = [
        v
        for v in variables
        if isinstance(v, values.SyncOnReadVariable)
        and v.aggregation == tf.VariableAggregation.SUM
    ]
    sums = ops.push_pull_all([local_value(v) for v in counts], ops.Sum)
    _values.sums = {id(v): total for v, total in zip(counts, sums, strict=True)}
    try:
        yield
    finally:
        _values.sums = {}


def take_steps(iterator: Any, most: int) -> int | None:
    """Takes up to so many steps' data; how many, if all workers know how many."""
    if iterator._cardinality == tf.data.INFINITE_CARDINALITY:
        return most
    if iterator._cardinality < 0:
        return None
    left = getattr(iterator, "_tf_byteps_left", int(iterator._cardinality))
    iterator._tf_byteps_left = max(0, left - most)
    return min(left, most)


@contextlib.contextmanager
def _own_random_numbers(rank: int) -> Iterator[None]:
    """Lets operations that take TensorFlow's seed draw others on each replica."""
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    holder, name = (context.context(), "_seed") if graph is None else (graph, "seed")
    seed = getattr(holder, name)
    if seed is not None:
        setattr(holder, name, (seed + 1000003 * rank) % 2**31)
    try:
        yield
    finally:
        setattr(holder, name, seed)


def _update_statistic(variable: Any, update_fn: Any, value: Any, **kwargs: Any) -> Any:
    """Writes the mean over all replicas, by their numbers of samples."""
    value = tf.cast(value, variable.dtype)
    share = _batch.current()
    if share is not None and share.write(local_value(variable)):
        pass  # all at once, when the step is over
    elif share is None:
        (value,) = ops.push_pull_all([value], ops.Average)
    else:
        value = share.mean(value)
    return distribute_lib.get_replica_context()._update(
        variable, update_fn, args=(value,), kwargs=kwargs, group=True
    )


class Extended(mirrored_strategy.MirroredExtended):
    """See above. Owned by the strategy, `container_strategy`."""

    def __init__(
        self,
        container_strategy: tf.distribute.Strategy,
        job: runtime.Job,
        device: str,
        cluster_resolver: Any,
    ) -> None:
        # Not MirroredExtended's: it sets up TensorFlow's own collectives.
        distribute_lib.StrategyExtendedV1.__init__(self, container_strategy)
        self.job = job
        self.in_use = False  # whether anything was made in its scope
        _made.add(self)
        self._cluster_resolver = cluster_resolver
        self._use_var_policy = False
        self.experimental_enable_get_next_as_optional = True
        self._devices = (device_util.canonicalize(device),)
        host = device_util.canonicalize("/device:CPU:0", self._devices[0])
        self._input_workers_devices = ((host, self._devices),)
        self._host_input_device = numpy_dataset.SingleDevice(host)

    # --- who is who --------------------------------------------------------------

    @property
    def _num_replicas_in_sync(self) -> int:
        return self.job.size

    def _in_multi_worker_mode(self) -> bool:
        return self.job.size > 1

    @property
    def experimental_between_graph(self) -> bool:
        return self.job.size > 1

    @property
    def should_checkpoint(self) -> bool:
        return self.job.rank == 0

    @property
    def should_save_summary(self) -> bool:
        return self.job.rank == 0

    def _get_replica_id_in_sync_group(self, replica_id: int) -> int:
        return self.job.rank + replica_id

    def _get_local_replica_id(self, replica_id_in_sync_group: int) -> int:
        return replica_id_in_sync_group - self.job.rank

    def _configure(
        self,
        session_config: Any = None,
        cluster_spec: Any = None,
        task_type: Any = None,
        task_id: Any = None,
    ) -> None:
        if cluster_spec:
            raise ArgumentError(
                "a BytePSStrategy joins its cluster when it is made: expected "
                f"configure() without a cluster_spec. Received: {cluster_spec}"
            )
        super()._configure(session_config)

    # --- running -----------------------------------------------------------------

    def _use_merge_call(self) -> bool:
        return False

    def _call_for_each_replica(self, fn: Any, args: Any, kwargs: Any) -> Any:
        replica_context = distribute_lib.ReplicaContext(
            self._container_strategy(), self.job.rank
        )
        args = distribute_utils.select_replica(0, args)
        kwargs = distribute_utils.select_replica(0, kwargs)
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(tf.device(self._devices[0]))
                stack.enter_context(replica_context)
                if self.job.rank > 0 and self.job.settings.semantics == "global":
                    stack.enter_context(_own_random_numbers(self.job.rank))
                return fn(*args, **kwargs)
        except RuntimeError as err:
            if "tf.distribute.Strategy" not in str(err):
                raise
            raise ArgumentError(
                "something that was made outside of the strategy's scope is used in "
                "a replica: make model, optimizer, metrics and variables all inside "
                f"`with strategy.scope():` (TensorFlow says: {err})"
            ) from err

    def _replica_ctx_update(
        self, var: Any, fn: Any, args: Any, kwargs: Any, group: bool
    ) -> Any:
        del group
        if isinstance(var, values.DistributedVariable):
            var = var._get_replica(0)
        with tf.device(var.device), tf.name_scope("update"):
            return fn(var, *args, **kwargs)

    # --- exchange ----------------------------------------------------------------

    def _replica_ctx_all_reduce(
        self, reduce_op: Any, value: Any, options: Any = None
    ) -> Any:
        del options
        tensors = tf.nest.flatten(value)
        return tf.nest.pack_sequence_as(value, self._all_reduce(reduce_op, tensors))

    def _reduce_to(
        self, reduce_op: Any, value: Any, destinations: Any, options: Any
    ) -> Any:
        del destinations, options
        if (
            distribute_utils.is_mirrored(value)
            and reduce_op == tf.distribute.ReduceOp.MEAN
        ):
            return value  # the same on all workers
        known = getattr(_values, "sums", {}).get(id(value))
        if known is not None:
            return known
        value = local_value(value)
        tensors = tf.nest.flatten(value)
        return tf.nest.pack_sequence_as(value, self._all_reduce(reduce_op, tensors))

    def _batch_reduce_to(
        self, reduce_op: Any, value_destination_pairs: Any, options: Any
    ) -> list:
        del options
        tensors = [local_value(value) for value, _ in value_destination_pairs]
        return self._all_reduce(reduce_op, tensors)

    def _all_reduce(self, reduce_op: Any, tensors: list) -> list:
        if not self.job.distributed:
            return [
                t if isinstance(t, tf.IndexedSlices) else tf.convert_to_tensor(t)
                for t in tensors
            ]
        op = _REDUCE_OPS.get(reduce_op)
        if op is None:
            raise ArgumentError(
                "expected tf.distribute.ReduceOp.SUM or MEAN to combine values of "
                f"replicas. Received: {reduce_op}"
            )
        return ops.push_pull_all(tensors, op)

    def _gather_to_implementation(
        self, value: Any, destinations: Any, axis: Any, options: Any
    ) -> Any:
        del destinations, options
        tensor = tf.convert_to_tensor(local_value(value))
        if not self.job.distributed:
            return tensor
        rank = tensor.shape.rank
        if rank is None or not isinstance(axis, int) or not -rank <= axis < rank:
            raise ArgumentError(
                "gather: axis must be a dimension of the tensor, whose rank must be "
                f"known. Received: axis {axis}, shape {tensor.shape}"
            )
        # What is gathered along comes first, and goes back where it was.
        order = [axis % rank, *(d for d in range(rank) if d != axis % rank)]
        if order[0] == 0:
            return ops.allgather(tensor)
        gathered = ops.allgather(tf.transpose(tensor, order))
        return tf.transpose(gathered, [order.index(d) for d in range(rank)])

    def _broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        # Within a process: replicas in sync compute what is written to all.
        del destinations
        return tensor

    # --- variables ---------------------------------------------------------------

    def _create_variable(self, next_creator: Any, **kwargs: Any) -> Any:
        self.in_use = True
        # What Keras leaves open are a layer's own statistics, such as those of
        # BatchNormalization: every replica computes others, and all keep the mean.
        # (Optimizer state is made next to its variable, and is equal anyhow.)
        statistic = (
            self.job.distributed
            and self.job.settings.semantics == "global"
            and not kwargs.get("trainable", True)
            and kwargs.get("colocate_with") is None
            and kwargs.get("aggregation") in (None, tf.VariableAggregation.NONE)
            and kwargs.get("synchronization") in (None, tf.VariableSynchronization.AUTO)
            and _is_floating(kwargs)
        )
        variable = super()._create_variable(next_creator, **kwargs)
        if statistic:
            variable._update_replica = functools.partial(_update_statistic, variable)
        return variable

    def _get_variable_creator_initial_value(
        self, replica_id: int, device: str, primary_var: Any, **kwargs: Any
    ) -> Any:
        del replica_id, primary_var
        initial_value = kwargs["initial_value"]
        own = getattr(_values, "are_own", False)
        if not self.job.distributed or initial_value is None or own:
            return initial_value

        def from_worker_0() -> tf.Tensor:
            with tf.device(device):
                value = initial_value() if callable(initial_value) else initial_value
                if isinstance(value, trackable.CheckpointInitialValue):
                    value = value.wrapped_value
                value = tf.convert_to_tensor(value, dtype=kwargs.get("dtype"))
                if not ops.is_sendable(value.dtype):
                    return value
                return ops.broadcast(value)

        return from_worker_0

    # --- datasets ----------------------------------------------------------------

    # TF1's iterators. MirroredExtended's would give every worker the whole input.
    _make_dataset_iterator = _MultiWorker._make_dataset_iterator
    _make_input_fn_iterator = _MultiWorker._make_input_fn_iterator

    def _make_input_context(self) -> tf.distribute.InputContext:
        return tf.distribute.InputContext(
            num_input_pipelines=self.job.size,
            input_pipeline_id=self.job.rank,
            num_replicas_in_sync=self.job.size,
        )

    def _experimental_distribute_dataset(self, dataset: Any, options: Any) -> Any:
        _check_input_options(options)
        distributed = input_util.get_distributed_dataset(
            dataset,
            self._input_workers_with_options(options),
            self._container_strategy(),
            num_replicas_in_sync=self.job.size,
            input_context=self._make_input_context(),
            options=options,
        )
        if self.job.distributed:
            distributed._cloned_datasets = [
                _with_own_memory(part) for part in distributed._cloned_datasets
            ]
        policy = dataset.options().experimental_distribute.auto_shard_policy
        # Of each batch every worker gets a part, which may be empty.
        in_parts = policy == tf.data.experimental.AutoShardPolicy.DATA
        return self._agree(distributed, in_parts)

    def _distribute_datasets_from_function(self, dataset_fn: Any, options: Any) -> Any:
        _check_input_options(options)
        distributed = input_util.get_distributed_datasets_from_function(
            dataset_fn,
            self._input_workers_with_options(options),
            [self._make_input_context()],
            self._container_strategy(),
            options=options,
        )
        return self._agree(distributed, in_parts=False)

    def _agree(self, dataset: Any, in_parts: bool) -> Any:
        """Makes all workers count the same number of batches.

        Workers may hold different numbers. Each step asks who still has data, and
        who has none gets an empty batch, unless all are infinite or end together;
        Keras counts steps by the cardinality, which therefore is the largest.

        A batch size that is known before the data is so on all workers, or on none.
        """
        if not self.job.distributed or not tf.executing_eagerly():
            return dataset
        size = _batch.static_size(local_spec(dataset._element_spec))
        own = tf.constant([[int(dataset.cardinality), size, in_parts]], tf.int64)
        everybodys = ops.allgather(own, "tf_byteps/dataset").numpy()
        lengths, sizes, parts = everybodys.T
        largest, smallest = int(lengths.max()), int(lengths.min())
        agreed = (
            largest
            if smallest >= 0 or smallest == largest
            else tf.data.UNKNOWN_CARDINALITY
        )
        end_together = smallest == largest >= 0 and parts.all()
        is_infinite = agreed == tf.data.INFINITE_CARDINALITY
        dataset._cardinality = agreed
        dataset._enable_get_next_as_optional = self._in_multi_worker_mode() and (
            not (is_infinite or end_together) or sizes.min() != sizes.max()
        )
        return dataset

    def _experimental_distribute_values_from_function(self, value_fn: Any) -> Any:
        value = value_fn(
            tf.distribute.experimental.ValueContext(self.job.rank, self.job.size)
        )
        return distribute_utils.regroup([value], always_wrap=True)


def _with_own_memory(part: tf.data.Dataset) -> tf.data.Dataset:
    """Copies a worker's parts of the batches.

    They are slices of batches, which may lie in NumPy arrays of the user's (of a
    generator or `PyDataset`). TensorFlow takes a slice for its own and lets operations
    write their results into it.
    """

    def copy(tensor: tf.Tensor) -> tf.Tensor:
        if tensor.dtype in (tf.variant, tf.resource):
            return tensor
        return tf.raw_ops.DeepCopy(x=tensor)

    def copy_all(*elements: Any) -> Any:
        flat = [
            tf.nest.map_structure(copy, value, expand_composites=True)
            for value in tf.nest.flatten(elements)
        ]
        return tf.nest.pack_sequence_as(part.element_spec, flat)

    return part.map(copy_all)


def _is_floating(kwargs: dict[str, Any]) -> bool:
    dtype = kwargs.get("dtype")
    if dtype is None:
        dtype = getattr(kwargs.get("initial_value"), "dtype", None)
    return dtype is not None and tf.as_dtype(dtype).is_floating


def _check_input_options(options: Any) -> None:
    if (
        options is not None
        and options.experimental_replication_mode
        == tf.distribute.InputReplicationMode.PER_REPLICA
    ):
        raise ArgumentError(
            "a worker of BytePSStrategy has one replica: expected "
            "InputReplicationMode.PER_WORKER. Received: PER_REPLICA"
        )
