"""What a worker of test_ops.py runs: every case, each reported by name."""

import functools
import os
import resource

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from support.worker import report, run_cases, sentence
from tf_byteps import runtime

CASES = {}
bps.init()
bps.init()  # in the same job it does nothing
size, rank = bps.size(), bps.rank()


def case(function):
    CASES[function.__name__] = function
    return function


def counters():
    return runtime.current().native.counters()


class Counted:
    """How many pushes and tensors there were in a block."""

    def __enter__(self):
        self._before = counters()
        return self

    def __exit__(self, *_):
        after = counters()
        self.pushes = after["pushes"] - self._before["pushes"]
        self.tensors = after["tensors"] - self._before["tensors"]


def pattern(count, r, dtype=tf.float32):
    """Values of worker r: of it and of the position, exact in half types too."""
    values = (np.arange(count) * (r + 1)) % 7 + r
    return tf.cast(tf.constant(values), dtype)


@case
def averages_and_sums():
    values = []
    for _ in range(8):
        x = tf.constant([rank + 1.0])
        values.append(
            [
                float(bps.push_pull(x, name="x", op=op)[0])
                for op in (bps.Average, bps.Sum, bps.Min, bps.Max)
            ]
        )
    total = bps.push_pull(tf.constant([rank + 1], tf.int32), op=bps.Sum)
    return {"values": values, "int32": [int(total[0]), total.dtype.name]}


@case
def through_optimizer_and_tape():
    """Gradients of rank + 1 by every way; SGD with rate 1 shows what was applied."""
    outputs = {}
    for op in (bps.Average, bps.Sum):
        variable = keras.Variable([0.0, 0.0])
        optimizer = bps.DistributedOptimizer(keras.optimizers.SGD(1.0), op=op)
        steps = []
        for _ in range(8):
            before = np.array(variable)
            optimizer.apply([tf.fill([2], rank + 1.0)], [variable])
            steps.append((before - np.array(variable)).tolist())
        outputs[f"optimizer {op.value}"] = steps
        weight = tf.Variable([1.0, 2.0])

        @tf.function
        def step(weight=weight, op=op):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weight) * (rank + 1.0)
            tape = bps.DistributedGradientTape(tape, op=op)
            return tape.gradient(loss, [weight])[0]

        outputs[f"tape {op.value}"] = [step().numpy().tolist() for _ in range(8)]
    return outputs


@case
def an_infinity_on_one_worker():
    """All skip the step, whichever way round the optimizers are wrapped."""

    def apply(optimizer, variable, gradient):
        optimizer.apply([gradient], [variable])

    outputs = []
    for inside in (True, False):
        optimizer = keras.optimizers.SGD(1.0)
        if inside:
            optimizer = bps.DistributedOptimizer(optimizer)
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=8)
        if not inside:
            optimizer = bps.DistributedOptimizer(optimizer)
        variable = keras.Variable([1.0])

        optimizer.build([variable])
        step = tf.function(
            functools.partial(apply, optimizer, variable), autograph=False
        )
        step(tf.constant([np.inf if rank == 1 else 8.0]))
        step(tf.constant([8.0]))
        outputs.append([variable.numpy().tolist(), float(optimizer.dynamic_scale)])
    return outputs


@case
def jacobians_are_a_workers_own():
    x = tf.constant([[1.0, 2.0]])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x * (rank + 1.0)
    tape = bps.DistributedGradientTape(tape)
    with Counted() as counted:
        values = [tape.jacobian(y, x)[0, :, 0], tape.batch_jacobian(y, x)[0]]
    return [counted.pushes, [v.numpy().tolist() for v in values]]


@case
def all_types():
    """Exact values for every type and operation that has a meaning."""
    wrong = []
    for dtype in (
        tf.float32,
        tf.float64,
        tf.float16,
        tf.bfloat16,
        tf.int8,
        tf.int16,
        tf.int32,
        tf.int64,
        tf.uint8,
        tf.bool,
    ):
        parts = [pattern(1000, r, dtype).numpy() for r in range(size)]
        for op in (bps.Sum, bps.Min, bps.Max, bps.Average):
            if op is bps.Average and not dtype.is_floating:
                continue
            if dtype == tf.bool:
                expected = (np.logical_and if op is bps.Min else np.logical_or).reduce(
                    parts
                )
            else:
                wide = [p.astype(np.float64) for p in parts]
                expected = {
                    bps.Sum: np.add.reduce(wide),
                    bps.Average: np.add.reduce(wide) / size,
                    bps.Min: np.minimum.reduce(wide),
                    bps.Max: np.maximum.reduce(wide),
                }[op].astype(parts[0].dtype)
            got = bps.push_pull(tf.constant(parts[rank]), op=op)
            if got.dtype != dtype or not np.array_equal(got.numpy(), expected):
                wrong.append(f"{op} of {dtype.name}")
    return wrong


@case
def halves_do_not_overflow():
    halves = tf.constant([40000.0, 1.0], tf.float16)
    average = bps.push_pull(halves, op=bps.Average)
    return average.numpy().tolist()


@case
def sizes():
    """Sums of tensors from nothing to many partitions."""
    partition = int(os.environ.get("TF_BYTEPS_PARTITION_BYTES", 4096000)) // 4
    wrong = []
    many = min(5 * partition + 3, 5_000_000)
    for count in (0, 1, 7, partition - 1, partition, partition + 1, many, 20000):
        expected = sum(pattern(count, r).numpy() for r in range(size))
        got = bps.push_pull(pattern(count, rank), name="sized", op=bps.Sum)
        if not np.array_equal(got.numpy(), expected):
            wrong.append(count)
    scalar = bps.push_pull(rank + 1.0, op=bps.Sum)
    return [wrong, float(scalar), list(scalar.shape)]


@case
def broadcasts():
    wrong = []
    for dtype in (
        tf.float32,
        tf.float64,
        tf.float16,
        tf.bfloat16,
        tf.int8,
        tf.uint16,
        tf.uint32,
        tf.int64,
        tf.bool,
        tf.complex64,
        tf.complex128,
    ):
        for root in range(size):
            expected = pattern(500, root, dtype).numpy()
            got = bps.broadcast(pattern(500, rank, dtype), root_rank=root)
            if not np.array_equal(got.numpy(), expected):
                wrong.append(f"{dtype.name} from {root}")
    ours = np.nan if rank else -0.0
    bits = bps.broadcast(tf.constant([ours, np.inf])).numpy()
    other = bps.broadcast(tf.constant([np.nan, 1.0]), root_rank=size - 1).numpy()
    return [wrong, str(bits.tolist()), str(other.tolist())]


@case
def gathers():
    rows = [(r + 1) % 3 for r in range(size)]  # one of them has none
    parts = [np.full((n, 2), r, np.int32) for r, n in enumerate(rows)]
    got = bps.allgather(tf.constant(parts[rank]))
    nothing = bps.allgather(tf.zeros([0, 3]))
    slices = tf.IndexedSlices(
        tf.fill([rank + 1, 2], rank + 1.0), tf.range(rank + 1), tf.constant([size, 2])
    )
    dense = {
        op.value: tf.convert_to_tensor(bps.push_pull(slices, op=op)).numpy().tolist()
        for op in (bps.Sum, bps.Average)
    }
    return [np.array_equal(got, np.concatenate(parts)), list(nothing.shape), dense]


@case
def objects_and_variables():
    obj = bps.broadcast_object({"rank": rank, "list": [1] * 1000}, root_rank=size - 1)
    variables = [tf.Variable([float(rank), np.nan if rank else 1.0]), tf.Variable(rank)]
    variables.append(keras.Variable([rank * 2.0]))
    bps.broadcast_variables(variables)
    bps.barrier()
    return [obj["rank"], len(obj["list"]), [np.array(v).tolist() for v in variables]]


@case
def disagreements():
    """Each is an error on all workers, and the next good tensor works."""
    last = rank == size - 1
    f = tf.ones
    cases = {
        "shape": lambda: bps.push_pull(f([5 if last else 4]), name="d"),
        "dtype": lambda: bps.push_pull(
            f([4], tf.float64 if last else tf.float32), name="d"
        ),
        "operation": lambda: bps.push_pull(
            f([4]), name="d", op=bps.Sum if last else bps.Average
        ),
        "root": lambda: bps.broadcast(f([4]), root_rank=1 if last else 0, name="d"),
        "kind": lambda: (
            bps.broadcast(f([4]), name="d") if last else bps.push_pull(f([4]), name="d")
        ),
        "columns": lambda: bps.allgather(f([2, 3 if last else 2]), name="d"),
    }
    outputs = {}
    for name, function in cases.items():
        text = sentence(function)
        good = bps.push_pull(tf.fill([4], rank + 1.0), name="d", op=bps.Sum)
        outputs[name] = [text, good.numpy().tolist()]
    return outputs


@case
def gradients():
    x = tf.Variable([1.0, 2.0])
    outputs = {}

    def gradient(function):
        with tf.GradientTape() as tape:
            y = function(x)
            loss = tf.reduce_sum(y * (rank + 1.0))
        return tf.convert_to_tensor(tape.gradient(loss, x)).numpy().tolist()

    functions = {
        "sum": lambda v: bps.push_pull(v, name="g", op=bps.Sum),
        "average": lambda v: bps.push_pull(v, name="g", op=bps.Average),
        "broadcast": lambda v: bps.broadcast(v, root_rank=1, name="g"),
        "allgather": lambda v: bps.allgather(v * 1.0, name="g"),
    }
    for name, function in functions.items():
        outputs[name] = [gradient(function), gradient(tf.function(function))]
    outputs["min"] = sentence(gradient, lambda v: bps.push_pull(v, op=bps.Min))
    return outputs


def pushes_of(function, *args, times=1):
    """The function's value, and the pushes of a call once it is traced."""
    graph = tf.function(function)
    graph(*args)
    with Counted() as counted:
        for _ in range(times):
            value = graph(*args)
    return tf.nest.map_structure(lambda t: np.array(t).tolist(), value), counted.pushes


@case
def graphs_keep_every_call():
    def push(x, name=None):
        return bps.push_pull(x, name=name, op=bps.Sum)

    def constants():
        return push(tf.constant([1.0, 2.0])), push(tf.constant([3.0, 3.0]))

    def equal_calls(x):
        return push(x, "same") + push(x, "same")

    def equal_unnamed(x):
        return push(x), push(x)

    def unused(x):
        push(x)
        push(x + 1)
        return x

    def only_side_effect(x):
        push(x)

    def loop(x):
        return tf.while_loop(
            lambda i, v: i < 4, lambda i, v: (i + 1, push(v) / size), (0, x)
        )[1]

    def loop_unused(x):
        def body(i):
            push(x)
            return i + 1

        return tf.while_loop(lambda i: i < 3, body, (0,))

    def branches(x):
        taken = tf.cond(x[0] > -1, lambda: push(x), lambda: push(x * 100))
        tf.cond(x[0] > 1000, lambda: push(x), lambda: x)
        return taken

    @tf.function
    def inner(x):
        return push(x) + 1

    def nested(x):
        return inner(x) + inner(x * 2)

    def for_loop(x):
        for _ in tf.range(3):
            x = push(x) / size
        return x

    x = tf.constant([rank + 1.0])
    functions = [
        equal_calls,
        equal_unnamed,
        unused,
        only_side_effect,
        loop,
        loop_unused,
        branches,
        nested,
        for_loop,
    ]
    outputs = {f.__name__: pushes_of(f, x) for f in functions}
    outputs["constants"] = pushes_of(constants)
    return outputs


@case
def retracing_on_one_worker():
    """Names do not depend on how often a worker traced."""

    @tf.function
    def step(x, flag):
        total = bps.push_pull(tf.reduce_sum(x)[None] * 0 + rank + 1, op=bps.Sum)
        return total, bps.push_pull(total * (1 if flag else 2), op=bps.Sum)

    if rank == 0:
        step.get_concrete_function(tf.TensorSpec([None]), True)
        step.get_concrete_function(tf.TensorSpec([3, 3]), False)
    values = [
        [float(v[0]) for v in step(tf.ones([rank + 1 + i]), True)] for i in range(3)
    ]
    return values


@case
def twenty_at_once():
    """All are in flight together: the first needs what the last worker pushes last.

    Worker 0 pushes name i in order, the others in the reverse order. Executed one
    after the other they would wait for each other for ever.
    """

    @tf.function
    def step(tensors):
        order = range(20) if rank == 0 else reversed(range(20))
        outputs = {i: bps.push_pull(tensors[i], f"many/{i}", bps.Sum) for i in order}
        return [outputs[i] for i in range(20)]

    tensors = [pattern(1000 + i, rank) for i in range(20)]
    got = step(tensors)
    return all(
        np.array_equal(got[i], sum(pattern(1000 + i, r).numpy() for r in range(size)))
        for i in range(20)
    )


@case
def unnamed_eager_calls_do_not_grow():
    x = tf.ones([1000])
    for _ in range(100):
        bps.push_pull(x, op=bps.Sum)
    memory = resident()
    with Counted() as counted:
        for _ in range(1000):
            total = bps.push_pull(x, op=bps.Sum)
    assert float(total[0]) == size
    return [counted.tensors, counted.pushes, resident() - memory]


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


@case
def xla():
    function = tf.function(lambda x: bps.push_pull(x), jit_compile=True)
    return sentence(function, tf.ones([3]))


@case
def cannot_be_saved():
    module = tf.Module()
    module.step = tf.function(lambda x: bps.push_pull(x))
    module.step(tf.ones([2]))
    return sentence(tf.saved_model.save, module, f"{os.environ['SCRATCH']}/m{rank}")


@case
def priorities_reach_the_operation():
    concrete = tf.function(
        lambda x: bps.push_pull(x, priority=-7)
    ).get_concrete_function(tf.ones([2]))
    ops = [op for op in concrete.graph.get_operations() if "PushPull" in op.type]
    return [op.get_attr("priority") for op in ops]


@case
def after_shutdown():
    bps.barrier()
    bps.shutdown()
    bps.shutdown()
    return [bps.is_initialized(), sentence(bps.push_pull, [1.0]), sentence(bps.rank)]


if __name__ == "__main__":
    run_cases(CASES, os.environ.get("CASES", ""))
    report("threads", len(os.listdir("/proc/self/task")))
