"""Push-pull, broadcast and allgather for tensors, eagerly and in graphs.

Every call becomes one TensorFlow operation that is tied to a handle, one per
tensor name. TensorFlow runs operations on different handles concurrently and
those on one handle in program order, and never folds, merges or prunes any.

A name pairs the tensors of the workers. Calls without one get a name from where
they stand: in a graph from the functions around them and their place in the
trace (the same after a retrace), eagerly one for each kind of call. So workers
that run the same program agree, and a loop of eager calls makes no new names.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tf_byteps import _native, errors, runtime
from tf_byteps import compression as compression_lib
from tf_byteps.compression import Compression


class ReduceOp(enum.Enum):
    """How the tensors of all workers become one."""

    AVERAGE = "Average"
    SUM = "Sum"
    MIN = "Min"
    MAX = "Max"

    def __repr__(self) -> str:
        return f"tf_byteps.{self.value}"


Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX

_FLOATING = (tf.float32, tf.float64, tf.float16, tf.bfloat16)
_REDUCIBLE = (
    *_FLOATING,
    tf.int8,
    tf.int16,
    tf.int32,
    tf.int64,
    tf.uint8,
    tf.bool,
)
_INTERNAL = "tf_byteps/"

_handles: dict[str, tf.Tensor] = {}
_labels = threading.local()  # of: for the tensors to come; now: for the next one
_handles_lock = threading.Lock()


def push_pull(
    tensor: Any,
    name: str | None = None,
    op: ReduceOp = Average,
    priority: int | None = None,
    compression: Any = None,
) -> Any:
    """Combines a tensor with the tensors of the same name on all workers.

    Args:
        tensor: A `tf.Tensor`, NumPy array, number or `tf.IndexedSlices`; of the
            same shape and type on all workers (slices: any number of rows).
        name: Pairs the workers' tensors. None: the call's own (see above).
        op: `Average`, `Sum`, `Min` or `Max`. Average needs a floating type.
            float16 and bfloat16 are summed in float32. For bool, `Sum` and
            `Max` are "or", `Min` is "and".
        priority: Larger goes first; None is 0.
        compression: A compressor, such as `Compression.fp16`; the same on all
            workers. None sends the tensor as it is.

    Returns:
        The combined tensor, of the same shape and type. For
        `tf.IndexedSlices` the rows of all workers one behind the other (their
        meaning is their sum), values divided by the number of workers for
        `Average`.

    Raises:
        NotInitializedError: before `init()`.
        tf.errors.InvalidArgumentError: the workers disagree about the tensor.
        tf.errors.UnavailableError: a process of the job is gone.
    """
    begun = _begin(tensor, name, op, priority or 0, compression)
    return begun.push_pull() if isinstance(begun, _Dense) else begun


@dataclasses.dataclass
class _Dense:
    """A dense tensor that is ready to go."""

    tensor: tf.Tensor
    name: str
    op: ReduceOp
    priority: int
    finish: Callable[[tf.Tensor], tf.Tensor]  # makes the result of what comes back
    plan: bytes = b""

    def push_pull(self) -> tf.Tensor:
        combined = _ops().tf_byteps_push_pull(
            handle=_handle(self.name),
            tensor=self.tensor,
            tensor_name=self.name,
            operation=self.op.value,
            priority=self.priority,
            plan=self.plan,
        )
        return self.finish(combined)


def _begin(
    tensor: Any, name: str | None, op: ReduceOp, priority: int, compression: Any
) -> Any:
    """Returns a `_Dense`, or the result where that is no push-pull."""
    job = runtime.require("push_pull")
    op = _checked_op(op)
    compressor = compression_lib.checked(compression)
    if isinstance(tensor, tf.IndexedSlices):
        return _push_pull_slices(tensor, name, op, priority, compressor, job)
    tensor = _to_tensor(tensor, "push_pull")
    _check_reducible(tensor.dtype, op)
    if not job.distributed:
        return tf.identity(tensor)
    name = _name_for(name, "push_pull")
    tensor, context = compressor.compress(tensor)
    finish = functools.partial(compressor.decompress, context=context)
    return _Dense(tensor, name, op, priority, finish)


def push_pull_all(
    tensors: Any, op: ReduceOp = Average, compression: Any = None, groups: Any = ()
) -> list:
    """Combines several tensors with their counterparts, all at the same time.

    The first goes first: with gradients in the order of the layers those that the
    next step needs first. One alone goes before them all, since something waits
    for it. Small ones travel together.

    Args:
        tensors: What `push_pull` takes, the same number on all workers; None stays
            None. Integers are averaged as TensorFlow divides them: rounded down.
        op: As for `push_pull`.
        compression: As for `push_pull`.
        groups: Lists of positions; the dense tensors of a group, if of one type,
            travel as one tensor.

    Returns:
        The combined tensors, in the same order.
    """
    tensors = list(tensors)
    groups = tuple(map(tuple, groups))
    if len(tensors) > 1 and tf.executing_eagerly():
        # One after the other otherwise.
        return _in_graph(_combine, tensors, op, compression, groups)
    return _combine(tensors, op, compression, groups)


def combine_gradients(
    gradients: Any,
    op: ReduceOp,
    sparse_as_dense: bool = False,
    compression: Any = None,
    groups: Any = (),
) -> list:
    """`push_pull_all` for gradients: unless there is nobody else.

    Args:
        gradients: Of all trainable variables; None stays None.
        op: `Average` or `Sum`.
        sparse_as_dense: Whether `tf.IndexedSlices` are made dense before.
        compression: As for `push_pull`.
        groups: As for `push_pull_all`.
    """
    gradients = list(gradients)
    if not runtime.require("combining gradients").distributed:
        return gradients
    if sparse_as_dense:
        gradients = [g if g is None else tf.convert_to_tensor(g) for g in gradients]
    return push_pull_all(gradients, op, compression, groups)


# What costs more by its messages than by its bytes goes into a bundle, and a bundle
# stays so small that all of it may have the priority of its first.
_SMALL_BYTES = 16 * 1024
_BUNDLE_BYTES = 64 * 1024


def _bundles(tensors: list, groups: Any, may_join: bool) -> list[list[int]]:
    """The positions of what travels as one tensor, in the order of the first ones."""
    bundles = []
    for group in groups:
        bundles += _by_type(tensors, group)
    in_group = {i for bundle in bundles for i in bundle}
    filling: dict[tf.DType, tuple[list[int], int]] = {}
    for i, tensor in enumerate(tensors):
        if tensor is None or i in in_group:
            continue
        size = _num_bytes(tensor) if may_join else None
        if size is None or size > _SMALL_BYTES:
            bundles.append([i])
            continue
        bundle, filled = filling.get(tensor.dtype, ([], 0))
        if not bundle or filled + size > _BUNDLE_BYTES:
            bundle, filled = [], 0
            bundles.append(bundle)
        bundle.append(i)
        filling[tensor.dtype] = (bundle, filled + size)
    return sorted(bundles)


def _num_bytes(tensor: Any) -> int | None:
    """None unless it is dense, and of a size that the trace knows."""
    if isinstance(tensor, tf.IndexedSlices) or not tensor.shape.is_fully_defined():
        return None
    return tensor.shape.num_elements() * tensor.dtype.size


def _by_type(tensors: list, positions: Any) -> list[list[int]]:
    """Splits a group: dense tensors of one type, at least two."""
    types: dict[tf.DType, list[int]] = {}
    for i in positions:
        if tf.is_tensor(tensors[i]) and not isinstance(tensors[i], tf.IndexedSlices):
            types.setdefault(tensors[i].dtype, []).append(i)
    return [group for group in types.values() if len(group) > 1]


@contextlib.contextmanager
def gradients_of(variables: Any) -> Iterator[None]:
    """Timelines show gradients that are combined in the block by their variables.

    Args:
        variables: Those of the gradients that are not None.
    """
    before = getattr(_labels, "of", ())
    _labels.of = [getattr(v, "path", getattr(v, "name", "")) for v in variables]
    try:
        yield
    finally:
        _labels.of, _labels.now = before, None


def _combine(tensors: list, op: ReduceOp, compression: Any, groups: Any) -> list:
    tensors = [
        t
        if t is None or isinstance(t, tf.IndexedSlices)
        else _to_tensor(t, "push_pull")
        for t in tensors
    ]
    urgent = 2**20 if len(tensors) == 1 else 0
    # Another compressor may look at a tensor as a whole.
    may_join = compression is None or compression in vars(Compression).values()
    present = [i for i, t in enumerate(tensors) if t is not None]
    labels = getattr(_labels, "of", ())
    if len(labels) != len(present):
        labels = [None] * len(present)  # something else is combined
    labels = dict(zip(present, labels, strict=True))
    bundles = _bundles(tensors, groups, may_join)
    begun = []
    for bundle in bundles:
        first = labels[bundle[0]]
        more = f" and {len(bundle) - 1} more" if len(bundle) > 1 else ""
        _labels.now = first and first + more
        joined = _joined([tensors[i] for i in bundle])
        begun.append(_begin_one(joined, op, urgent - bundle[0], compression))
    _labels.now = None
    if not tf.executing_eagerly():
        _plan([b for b in begun if isinstance(b, _Dense)])
    combined = list(tensors)
    for bundle, one in zip(bundles, begun, strict=True):
        parts = [tensors[i] for i in bundle]
        with _scope(parts):
            total = one.push_pull() if isinstance(one, _Dense) else one
        for i, result in zip(bundle, _taken_apart(total, parts), strict=True):
            combined[i] = result
    return combined


def _joined(tensors: list) -> Any:
    if len(tensors) == 1:
        return tensors[0]
    return tf.concat([tf.reshape(t, [-1]) for t in tensors], 0)


def _scope(tensors: list) -> Any:
    """TensorFlow shows it in an error."""
    if len(tensors) == 1:
        return contextlib.nullcontext()
    shapes = [re.sub(r"\D+", "x", str(t.shape)).strip("x") or "1" for t in tensors]
    return tf.name_scope(f"together_{'_'.join(shapes)[:200]}")


def _taken_apart(total: Any, tensors: list) -> list:
    if len(tensors) == 1:
        return [total]
    parts = tf.split(total, [tf.size(t) for t in tensors], num=len(tensors))
    results = []
    for tensor, part in zip(tensors, parts, strict=True):
        result = tf.reshape(part, tf.shape(tensor))
        result.set_shape(tensor.shape)
        results.append(result)
    return results


def _begin_one(tensor: Any, op: ReduceOp, priority: int, compression: Any) -> Any:
    is_dense = not isinstance(tensor, tf.IndexedSlices)
    if is_dense and op is Average and tensor.dtype.is_integer:
        size = tf.constant(runtime.require("push_pull").size, tensor.dtype)
        begun = _begin(tensor, None, Sum, priority, None)
        if not isinstance(begun, _Dense):
            return begun // size
        begun.finish = lambda total: total // size
        return begun
    return _begin(tensor, None, op, priority, compression)


def _plan(together: list[_Dense]) -> None:
    """Decides where tensors are summed; those whose shape is not known go alone."""
    known = [d for d in together if d.tensor.shape.num_elements() is not None]
    if not known:
        return
    sizes = [
        (
            d.name,
            d.tensor.shape.num_elements() * d.tensor.dtype.size,
            d.tensor.dtype.size,
        )
        for d in known
    ]
    for d, plan in zip(known, runtime.require("push_pull").plan(sizes), strict=True):
        d.plan = plan


def broadcast(tensor: Any, root_rank: int = 0, name: str | None = None) -> tf.Tensor:
    """Returns the tensor of worker `root_rank` on all workers, bit for bit.

    Args:
        tensor: A dense tensor of the same shape and type on all workers; any
            type of plain numbers.
        root_rank: The worker whose values count, in [0, size()).
        name: Pairs the workers' tensors, see `push_pull`.

    Raises:
        NotInitializedError, tf.errors.InvalidArgumentError,
        tf.errors.UnavailableError: as `push_pull`.
    """
    job = runtime.require("broadcast")
    root_rank = _checked_root(root_rank, job.size)
    tensor = _to_tensor(tensor, "broadcast")
    _check_sendable(tensor.dtype, "broadcast")
    if not job.distributed:
        return tf.identity(tensor)
    name = _name_for(name, "broadcast")
    return _ops().tf_byteps_broadcast(
        handle=_handle(name), tensor=tensor, tensor_name=name, root_rank=root_rank
    )


def allgather(tensor: Any, name: str | None = None) -> Any:
    """Concatenates the tensors of all workers along the first dimension.

    Args:
        tensor: At least one dimension; all but the first are the same on all
            workers. A `tf.IndexedSlices` gives the slices of all workers.
        name: Pairs the workers' tensors, see `push_pull`.

    Returns:
        Shape `[sum of the first dimensions, ...]`, in rank order.

    Raises:
        NotInitializedError, tf.errors.InvalidArgumentError,
        tf.errors.UnavailableError: as `push_pull`.
    """
    job = runtime.require("allgather")
    if isinstance(tensor, tf.IndexedSlices):
        if not job.distributed:
            return tensor
        return _allgather_slices(tensor, _name_for(name, "allgather"), 0)
    tensor = _to_tensor(tensor, "allgather")
    _check_sendable(tensor.dtype, "allgather")
    if tensor.shape.rank == 0:
        raise errors.ArgumentError(
            "allgather: expected a tensor with at least one dimension to "
            f"concatenate along. Received: a scalar of type {tensor.dtype.name}"
        )
    if not job.distributed:
        return tf.identity(tensor)
    return _allgather(tensor, _name_for(name, "allgather"), 0)


def broadcast_variables(variables: Any, root_rank: int = 0) -> None:
    """Gives every variable the value that it has on worker `root_rank`.

    Args:
        variables: `tf.Variable`s or Keras variables, in the same order on all
            workers; names do not matter.
        root_rank: The worker whose values count.
    """
    job = runtime.require("broadcast_variables")
    root_rank = _checked_root(root_rank, job.size)
    if not job.distributed:
        return
    variables = list(variables)
    values = [tf.convert_to_tensor(variable) for variable in variables]
    if tf.executing_eagerly():
        values = _in_graph(_broadcast_all, values, root_rank)
    else:
        values = _broadcast_all(values, root_rank)
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _broadcast_all(tensors: list, root_rank: int) -> list:
    return [broadcast(tensor, root_rank) for tensor in tensors]


def broadcast_object(obj: Any, root_rank: int = 0) -> Any:
    """Returns worker `root_rank`'s object on all workers. Eager only.

    Args:
        obj: Anything that pickles; only the root's counts. The workers of a
            job trust each other: what they receive is unpickled.
        root_rank: The worker whose object counts.
    """
    job = runtime.require("broadcast_object")
    root_rank = _checked_root(root_rank, job.size)
    if not job.distributed:
        return obj
    name = f"{_INTERNAL}broadcast_object"
    is_root = job.rank == root_rank
    data = np.frombuffer(pickle.dumps(obj) if is_root else b"", np.uint8)
    size = broadcast(np.int64(data.size), root_rank, f"{name}/size")
    if not is_root:
        data = np.zeros(int(size), np.uint8)
    data = broadcast(data, root_rank, f"{name}/data").numpy()
    return obj if is_root else pickle.loads(data.tobytes())


def allgather_object(obj: Any) -> list:
    """Returns the objects of all workers, by rank. Eager only.

    Args:
        obj: Anything that pickles. The workers of a job trust each other: what they
            receive is unpickled.
    """
    job = runtime.require("allgather_object")
    if not job.distributed:
        return [obj]
    name = f"{_INTERNAL}allgather_object"
    data = np.frombuffer(pickle.dumps(obj), np.uint8)
    sizes = allgather(np.array([data.size], np.int64), f"{name}/sizes").numpy()
    everything = allgather(data, f"{name}/data").numpy()
    parts = np.split(everything, np.cumsum(sizes)[:-1])
    return [pickle.loads(part.tobytes()) for part in parts]


def barrier() -> None:
    """Returns when all workers have called it, or have joined. Eager only."""
    job = runtime.require("barrier")
    if job.distributed:
        push_pull(np.zeros((), np.uint8), f"{_INTERNAL}barrier", Sum)


def join() -> int:
    """Lets the other workers go on without this one, which is out of data.

    For custom loops in which workers have different numbers of steps:

        for batch in dataset:
            train_step(batch)
        last_rank = tf_byteps.join()

    From then on the others' operations do not wait for this worker: `Sum` and
    `Average` take it for zeros (and `Average` still divides by `size()`), `Min` and
    `Max` leave it out, an allgather has no rows of it, and a broadcast from it is an
    error. Returns once all workers have called it; then everything is as before.

    What a worker missed it does not have. Weights are brought up to date by

        tf_byteps.broadcast_variables(model.variables, tf_byteps.join())

    Eager only; on each worker when nothing else of it is under way, or it waits.

    Returns:
        The rank of the worker that joined last, the same on all workers.

    Raises:
        NotInitializedError: before `init()`.
        ArgumentError: inside a `tf.function`.
        tf.errors.UnavailableError: a process of the job is gone.
    """
    job = runtime.require("join")
    if not tf.executing_eagerly():
        raise errors.ArgumentError(
            "join cannot be part of a tf.function or graph: call it eagerly, after "
            "the loop"
        )
    if not job.distributed:
        return job.rank
    try:
        return job.native.join()
    except _native.core().StatusError as err:
        code, message = err.args
        error = tf.compat.v1.errors.exception_type_from_error_code(code)
        raise error(None, None, message) from None


_traced: dict[Any, Any] = {}


def _in_graph(function: Any, tensors: list, *arguments: Any) -> list:
    """`function(tensors, *arguments)` as a graph, where operations run concurrently.

    Traced once for the same types and shapes; None stays out of it.
    """
    present = [t for t in tensors if t is not None]
    specs = tuple(map(_spec_of, present))
    given = tuple(t is not None for t in tensors)
    key = (function, specs, given, arguments)
    if key not in _traced:

        def body(*present: Any) -> list:
            rest = iter(present)
            return function([next(rest) if g else None for g in given], *arguments)

        # Called itself it would warn of the many shapes there are.
        traced = tf.function(body, autograph=False).get_concrete_function(*specs)
        _traced[key] = traced
    return list(_traced[key](*present))


def _spec_of(tensor: Any) -> tf.TypeSpec:
    if not isinstance(tensor, tf.IndexedSlices):
        return tf.TensorSpec.from_tensor(tf.convert_to_tensor(tensor))
    dense_shape = tensor.dense_shape
    return tf.IndexedSlicesSpec(
        tensor.shape,
        tensor.dtype,
        tensor.indices.dtype,
        None if dense_shape is None else dense_shape.dtype,
    )


def _push_pull_slices(
    slices: tf.IndexedSlices,
    name: str | None,
    op: ReduceOp,
    priority: int | None,
    compressor: Any,
    job: runtime.Job,
) -> tf.IndexedSlices:
    if op not in (Average, Sum):
        raise errors.ArgumentError(
            f"push_pull of tf.IndexedSlices: op must be Average or Sum. Received: {op}"
        )
    _check_reducible(slices.values.dtype, op)
    if not job.distributed:
        return slices
    name = _name_for(name, "push_pull")
    values, context = compressor.compress(slices.values)
    gathered = _allgather_slices(
        tf.IndexedSlices(values, slices.indices, slices.dense_shape),
        name,
        priority or 0,
    )
    values = compressor.decompress(gathered.values, context)
    if op is Average:
        values = values / tf.cast(job.size, values.dtype)
    return tf.IndexedSlices(values, gathered.indices, gathered.dense_shape)


def _allgather_slices(
    slices: tf.IndexedSlices, name: str, priority: int
) -> tf.IndexedSlices:
    return tf.IndexedSlices(
        _allgather(slices.values, f"{name}/values", priority),
        _allgather(slices.indices, f"{name}/indices", priority),
        slices.dense_shape,
    )


def _allgather(tensor: tf.Tensor, name: str, priority: int) -> tf.Tensor:
    return _ops().tf_byteps_allgather(
        handle=_handle(name), tensor=tensor, tensor_name=name, priority=priority
    )


def _ops() -> Any:
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    if graph is not None:
        from tf_byteps import _extended

        if _extended.is_compiled_by_xla(graph):
            raise errors.ArgumentError(
                "tf_byteps cannot communicate inside a function that XLA compiles: "
                "set jit_compile=False (model.compile(..., jit_compile=False) or "
                "tf.function(jit_compile=False)), or call push_pull outside of it"
            )
        if hasattr(graph, "mark_as_unsaveable"):  # not so in TF1's sessions
            # A saved graph would refer to a running job.
            graph.mark_as_unsaveable(
                "A function that communicates through tf_byteps cannot be saved: "
                "save the model without its training functions."
            )
    return _native.op_library()


def _to_tensor(value: Any, call: str) -> tf.Tensor:
    if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
        raise errors.ArgumentError(
            f"{call}: expected a dense tensor or tf.IndexedSlices. "
            f"Received: a {type(value).__name__}"
        )
    return tf.convert_to_tensor(value)


def _checked_op(op: Any) -> ReduceOp:
    if isinstance(op, ReduceOp):
        return op
    raise errors.ArgumentError(
        f"op must be tf_byteps.Average, Sum, Min or Max. Received: {op!r}"
    )


def _check_reducible(dtype: tf.DType, op: ReduceOp) -> None:
    if dtype not in _REDUCIBLE:
        raise errors.ArgumentError(
            "push_pull: expected a tensor of type "
            f"{', '.join(d.name for d in _REDUCIBLE)}. Received: {dtype.name}"
        )
    if op is Average and dtype not in _FLOATING:
        raise errors.ArgumentError(
            f"push_pull: Average of {dtype.name} is not defined; use "
            "op=tf_byteps.Sum, or cast to a floating type"
        )


def is_sendable(dtype: tf.DType) -> bool:
    """Whether tensors of that type are plain numbers."""
    return dtype not in (tf.string, tf.resource, tf.variant) and not dtype.is_quantized


def _check_sendable(dtype: tf.DType, call: str) -> None:
    if not is_sendable(dtype):
        raise errors.ArgumentError(
            f"{call}: expected a tensor of plain numbers. Received: {dtype.name}"
        )


def _checked_root(root_rank: Any, size: int) -> int:
    if isinstance(root_rank, (int, np.integer)) and 0 <= root_rank < size:
        return int(root_rank)
    raise errors.ArgumentError(
        f"root_rank must be an integer in [0, {size}). Received: {root_rank!r}"
    )


def _name_for(name: str | None, kind: str) -> str:
    if name is not None:
        if not isinstance(name, str) or not name:
            raise errors.ArgumentError(
                f"{kind}: name must be a string that is not empty. Received: {name!r}"
            )
        return name
    if tf.executing_eagerly():
        return f"{_INTERNAL}eager/{kind}"
    graph = tf.compat.v1.get_default_graph()
    name = f"{_INTERNAL}{_graph_path(graph)}/{_next(graph, kind)}"
    label = getattr(_labels, "now", None)
    if label:
        runtime.require(kind).native.label(name, label)
    return name


def _graph_path(graph: Any) -> str:
    """A name for a graph that is the same on all workers and in every trace."""
    path = getattr(graph, "_tf_byteps_path", None)
    if path is None:
        # TensorFlow numbers the functions of a process; the number says how often
        # something was traced, not what.
        path = re.sub(r"(_\d+)+$", "", getattr(graph, "name", "graph"))
        outer = getattr(graph, "outer_graph", None)
        if hasattr(outer, "outer_graph"):  # a function inside a function
            path = f"{_graph_path(outer)}/{_next(outer, path)}"
        graph._tf_byteps_path = path
    return path


def _next(graph: Any, kind: str) -> str:
    counters = getattr(graph, "_tf_byteps_counters", None)
    if counters is None:
        counters = graph._tf_byteps_counters = {}
    count = counters[kind] = counters.get(kind, -1) + 1
    return f"{kind}.{count}"


def _handle(name: str) -> tf.Tensor:
    """The handle of a tensor name, made once and outside of all functions."""
    with tf.init_scope():
        if not tf.executing_eagerly():
            # A TensorFlow 1 graph: handles live in it.
            with tf.device("/CPU:0"):
                return _native.op_library().tf_byteps_tensor_handle(tensor_name=name)
        with _handles_lock:
            handle = _handles.get(name)
            if handle is None:
                with tf.device("/CPU:0"):
                    handle = _native.op_library().tf_byteps_tensor_handle(
                        tensor_name=name
                    )
                _handles[name] = handle
            return handle


@tf.RegisterGradient("TfByteps>PushPull")
def _push_pull_gradient(op: tf.Operation, gradient: tf.Tensor) -> list:
    """A sum's gradient is the sum of the gradients, an average's the average."""
    operation = op.get_attr("operation").decode()
    if operation not in ("Sum", "Average"):
        raise LookupError(f"push_pull with op={operation} has no gradient")
    name = _gradient_name(op)
    return [None, push_pull(gradient, name, ReduceOp(operation))]


@tf.RegisterGradient("TfByteps>Broadcast")
def _broadcast_gradient(op: tf.Operation, gradient: tf.Tensor) -> list:
    """All workers' gradients belong to the root."""
    total = push_pull(gradient, _gradient_name(op), Sum)
    if runtime.require("broadcast").rank == op.get_attr("root_rank"):
        return [None, total]
    # Nothing else would keep the exchange in a graph here.
    with tf.control_dependencies([total]):
        return [None, tf.zeros_like(gradient)]


@tf.RegisterGradient("TfByteps>Allgather")
def _allgather_gradient(op: tf.Operation, gradient: tf.Tensor) -> list:
    """Each worker gets what all workers say of its own rows."""
    name = _gradient_name(op)
    total = push_pull(gradient, name, Sum)
    rows = tf.shape(op.inputs[1])[:1]
    all_rows = allgather(rows, f"{name}/rows")
    rank = runtime.require("allgather").rank
    begin = tf.reduce_sum(all_rows[:rank])
    return [None, total[begin : begin + rows[0]]]


def _gradient_name(op: tf.Operation) -> str:
    """Its own for each use of a name: in the graph of a gradient, operations on one
    handle are not ordered."""
    name = f"{op.get_attr('tensor_name').decode()}/gradient"
    if tf.executing_eagerly():
        return name
    return _next(tf.compat.v1.get_default_graph(), name)
