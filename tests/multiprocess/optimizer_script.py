"""What a worker of test_optimizer.py runs: scripts without a strategy."""

import inspect
import os
import pathlib

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from support.worker import run_cases, sentence
from tf_byteps import runtime

CASES = {}
FOLDER = pathlib.Path(os.environ["SCRATCH"])
bps.init()
size, rank = bps.size(), bps.rank()


def case(function):
    CASES[function.__name__] = function
    return function


class Pushes:
    """How many partitions and bytes this worker pushed in a block."""

    def __enter__(self):
        self._before = runtime.current().native.counters()
        return self

    def __exit__(self, *_):
        after = runtime.current().native.counters()
        self.count = after["pushes"] - self._before["pushes"]
        self.bytes = after["bytes_pushed"] - self._before["bytes_pushed"]


def gradients_of(step, r):
    """Of two variables, on worker r."""
    random = np.random.RandomState(100 * step + r)
    return [
        tf.constant(random.randn(4, 3), tf.float32),
        tf.constant(random.randn(3), tf.float32),
    ]


def mean_gradients(step):
    everybodys = [gradients_of(step, r) for r in range(size)]
    return [sum(parts) / size for parts in zip(*everybodys, strict=True)]


def train(optimizer, gradients, steps=4):
    """What the variables become."""
    variables = [keras.Variable(np.ones((4, 3), "float32")), keras.Variable([0.0] * 3)]
    for step in range(steps):
        optimizer.apply(gradients(step), variables)
    return [v.numpy() for v in variables]


def difference(make, gradients=mean_gradients, steps=4, **options):
    """Between the distributed optimizer and one given what all say together."""
    ours = train(
        bps.DistributedOptimizer(make(), **options),
        lambda step: gradients_of(step, rank),
        steps,
    )
    one = train(make(), gradients, steps)
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, one, strict=True))


WRAPPERS = (keras.optimizers.LossScaleOptimizer, keras.optimizers.MultiOptimizer)


class Custom(keras.optimizers.Optimizer):
    """Somebody's own."""

    def update_step(self, gradient, variable, learning_rate):
        self.assign_sub(variable, 2 * gradient * learning_rate)


@case
def every_optimizer():
    classes = {
        name: member
        for name, member in vars(keras.optimizers).items()
        if inspect.isclass(member)
        and issubclass(member, keras.optimizers.Optimizer)
        and member not in (keras.optimizers.Optimizer, *WRAPPERS)
    }
    classes["Custom"] = Custom
    return {name: difference(lambda c=c: c(0.1)) for name, c in classes.items()}


@case
def with_options():
    def sum_of(step):
        return [size * g for g in mean_gradients(step)]

    def scaled():
        return keras.optimizers.LossScaleOptimizer(
            keras.optimizers.SGD(0.1, momentum=0.9), initial_scale=1.0
        )

    def multi():
        a, b = keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.1)
        return keras.optimizers.MultiOptimizer(lambda v: a if len(v.shape) > 1 else b)

    def make(**options):
        return lambda: keras.optimizers.SGD(0.1, momentum=0.9, **options)

    return {
        "sum": difference(make(), sum_of, op=bps.Sum),
        "global_clipnorm": difference(make(global_clipnorm=0.1)),
        "clipnorm": difference(make(clipnorm=0.1)),
        "clipvalue": difference(make(clipvalue=0.1)),
        "ema": difference(make(use_ema=True, ema_overwrite_frequency=2)),
        "weight_decay": difference(make(weight_decay=0.1)),
        "accumulated": difference(make(gradient_accumulation_steps=2)),
        "loss scale": difference(scaled),
        "groups": difference(make(), groups=1),
        "multi": difference(multi, groups=1),
    }


@case
def several_passes():
    """Only every third communicates; the sum or the mean of three is applied."""
    values = {}
    for average in (False, True):
        optimizer = bps.DistributedOptimizer(
            keras.optimizers.SGD(1.0),
            backward_passes_per_step=3,
            average_aggregated_gradients=average,
        )
        variable = keras.Variable([0.0])
        optimizer.build([variable])
        seen = []
        for step in range(6):
            with Pushes() as pushes:
                optimizer.apply([tf.constant([1.0 + step + rank])], [variable])
            seen.append([pushes.count > 0, float(variable.numpy()[0])])
        values[str(average)] = seen
    return values


@case
def compressed():
    class Tenth:
        """Somebody's own compressor."""

        @staticmethod
        def compress(tensor):
            return tensor[:10], tf.size(tensor)

        @staticmethod
        def decompress(tensor, context):
            return tf.pad(tensor, [[0, context - 10]])

    values = {}
    tensor = tf.range(1000.0) * (rank + 1) / 7
    expected = tf.range(1000.0) * sum(range(1, size + 1)) / 7
    for name, compression in (
        ("none", bps.Compression.none),
        ("fp16", bps.Compression.fp16),
        ("bf16", bps.Compression.bf16),
        ("own", Tenth),
    ):
        with Pushes() as pushes:
            total = bps.push_pull(tensor, name, op=bps.Sum, compression=compression)
        error = float(tf.reduce_max(tf.abs(total - expected) / (expected + 1)))
        values[name] = [error, pushes.bytes, total.dtype.name]
    slices = tf.IndexedSlices(tensor[None], [rank], [size, 1000])
    with Pushes() as pushes:
        rows = bps.push_pull(slices, op=bps.Sum, compression=bps.Compression.fp16)
    values["slices"] = [rows.values.dtype.name, list(rows.values.shape)]
    values["optimizer"] = difference(
        lambda: keras.optimizers.SGD(0.1), compression=bps.Compression.fp16
    )
    return values


@case
def groups():
    """Gradients of a group are one tensor on the wire."""
    counts = {}
    for name, choice in (
        ("none", lambda v: None),
        ("one", lambda v: 1),
        ("two", lambda v: 2),
        ("lists", lambda v: [[v[0], v[2]], [v[1]]]),
    ):
        # Of a size that nothing else puts together.
        variables = [keras.Variable([0.0] * (5000 + i)) for i in range(4)]
        optimizer = bps.DistributedOptimizer(
            keras.optimizers.SGD(1.0), groups=choice(variables)
        )
        optimizer.build(variables)
        gradients = [tf.fill([5000 + i], float(i + rank)) for i in range(4)]
        with Pushes() as pushes:
            optimizer.apply(gradients, variables)
        counts[name] = [
            pushes.count,
            [float(v.numpy()[0]) for v in variables],
        ]
    return counts


@case
def sparse():
    """Rows travel, doubled ones too, and none from a worker that has none."""
    values = []
    for as_dense in (False, True):
        variable = keras.Variable(np.zeros((1000, 2), "float32"))
        optimizer = bps.DistributedOptimizer(
            keras.optimizers.SGD(1.0), op=bps.Sum, sparse_as_dense=as_dense
        )
        optimizer.build([variable])
        indices = [] if rank == size - 1 else [rank, rank, 5]
        rows = tf.ones([len(indices), 2]) * (rank + 1)
        gradient = tf.IndexedSlices(rows, tf.constant(indices, tf.int64), [1000, 2])
        with Pushes() as pushes:
            optimizer.apply([gradient], [variable])
        values.append([variable.numpy()[:6, 0].tolist(), pushes.bytes > 4000])
    return values


@case
def tapes():
    x, y = tf.Variable([2.0]), tf.Variable([3.0])
    unused = tf.Variable([1.0])
    table = tf.Variable(tf.ones([4, 1]))
    scale = rank + 1.0
    with tf.GradientTape(persistent=True) as tape:
        product = scale * x * x * y
        looked_up = tf.reduce_sum(tf.gather(table, [rank, rank, 3])) * scale
    tape = bps.DistributedGradientTape(tape, op=bps.Sum)
    values = {
        "persistent": [tape.gradient(product, v) for v in (x, y)],
        "none": [g is None for g in tape.gradient(product, [x, unused])],
        "structure": tape.gradient(product, {"x": x, "y": [y]}),
        "sparse": tf.convert_to_tensor(tape.gradient(looked_up, table)),
    }
    with tf.GradientTape() as outer:
        with bps.DistributedGradientTape(tf.GradientTape(), op=bps.Sum) as inner:
            cube = scale * x * x * x
        slope = inner.gradient(cube, x)
        square = slope * slope
    values["nested"] = outer.gradient(square, x)
    return tf.nest.map_structure(
        lambda v: v.numpy().tolist() if tf.is_tensor(v) else v, values
    )


def small_model():
    keras.utils.set_random_seed(rank)
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])


def own_data(n=32):
    x = np.random.RandomState(rank).rand(n, 3).astype("float32")
    return x, x.sum(1, keepdims=True)


@case
def saved_and_loaded():
    """A plain optimizer is saved; `load_model` makes it a distributed one again."""
    model = small_model()
    model.compile(bps.DistributedOptimizer(keras.optimizers.Adam(0.1)), "mse")
    x, y = own_data()
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    path = FOLDER / "model.keras"
    if rank == 0:
        model.save(path)
    bps.barrier()
    plain = keras.models.load_model(path)
    again = bps.load_model(path)
    again_16 = bps.load_model(path, compression=bps.Compression.fp16)
    for m in (model, again, again_16):
        m.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    return {
        "plain": type(plain.optimizer) is keras.optimizers.Adam,
        "variables": len(plain.optimizer.variables) == len(model.optimizer.variables),
        "kind": isinstance(again.optimizer, keras.optimizers.Adam),
        "weights": [
            [w.tolist() for w in m.get_weights()] for m in (model, again, again_16)
        ],
    }


@case
def callbacks():
    class Look(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.rates, self.weights = [], []

        def on_train_batch_begin(self, batch, logs=None):
            self.rates.append(float(self.model.optimizer.learning_rate.numpy()))
            self.weights.append(self.model.get_weights()[0].tolist())

    model = small_model()
    model.compile(bps.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    look = Look()
    x, y = own_data()
    history = model.fit(
        x,
        y,
        batch_size=8,
        epochs=4,
        verbose=0,
        callbacks=[
            bps.callbacks.BroadcastGlobalVariablesCallback(0),
            bps.callbacks.MetricAverageCallback(),
            bps.callbacks.LearningRateWarmupCallback(0.1 * size, warmup_epochs=2),
            bps.callbacks.LearningRateScheduleCallback(
                0.1 * size, multiplier=lambda epoch: 0.1**epoch, start_epoch=2
            ),
            look,
        ],
    )
    return {
        "rates": look.rates,
        "first": look.weights[0],
        "last": look.weights[-1],
        "loss": history.history["loss"],
        "learning_rate": history.history["learning_rate"],
    }


@case
def unequal_numbers_of_steps():
    """Workers with less data join, and the others train on; all end with the same."""
    model = small_model()
    model.compile(bps.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    x, y = own_data(8 * (2 + rank))
    model.fit(x, y, batch_size=8, verbose=0)
    last = bps.join()
    bps.broadcast_variables(model.variables, root_rank=last)
    return [last, [w.tolist() for w in model.get_weights()]]


@case
def objects():
    return bps.allgather_object({"rank": rank, "text": "x" * rank})


@case
def mistakes():
    sgd = keras.optimizers.SGD
    built = sgd()
    built.build([keras.Variable([1.0])])

    def make(optimizer, **options):
        return sentence(bps.DistributedOptimizer, optimizer, **options)

    return {
        "passes": make(sgd(), backward_passes_per_step=0),
        "built": make(built, backward_passes_per_step=2),
        "both": make(sgd(gradient_accumulation_steps=2), backward_passes_per_step=2),
        "groups": make(sgd(), groups="all"),
        "compression": make(sgd(), compression="fp16"),
        "twice": make(
            keras.optimizers.LossScaleOptimizer(bps.DistributedOptimizer(sgd()))
        ),
        "rate": sentence(bps.callbacks.LearningRateWarmupCallback, None),
    }


if __name__ == "__main__":
    run_cases(CASES, os.environ.get("CASES", ""))
