"""What a worker of test_strategy.py runs: every case, each reported by name.

Also run by one process alone, for the values that many must reach.
"""

import os

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from support.worker import run_cases, sentence
from tf_byteps import runtime

CASES = {}
strategy = bps.BytePSStrategy()
size, rank = bps.size(), bps.rank()


def case(function):
    CASES[function.__name__] = function
    return function


def data(n=64):
    x = np.random.RandomState(0).rand(max(n, 64), 4).astype("float32")[:n]
    return x, 2 * x.sum(axis=1, keepdims=True)


def uniform(seed):
    return keras.initializers.RandomUniform(-0.5, 0.5, seed=seed)


def mlp(optimizer=None, built=True, batch_norm=None, **options):
    keras.utils.set_random_seed(rank)  # worker 0's values must win
    with strategy.scope():
        layers = [keras.Input((4,))] if built else []
        layers.append(
            keras.layers.Dense(8, activation="relu", kernel_initializer=uniform(1))
        )
        if batch_norm is not None:
            layers.append(keras.layers.BatchNormalization(synchronized=batch_norm))
        layers.append(keras.layers.Dense(1, kernel_initializer=uniform(2)))
        model = keras.Sequential(layers)
        model.compile(
            optimizer=optimizer() if optimizer else keras.optimizers.SGD(0.05),
            loss="mse",
            metrics=["mae"],
            **options,
        )
    return model


def sums(model):
    # In float64: 2000 weights that cancel would lose more than the tolerance.
    return [float(np.sum(w, dtype="float64")) for w in model.get_weights()]


def result(model, history=None):
    logs = {k: [float(v) for v in values] for k, values in history.history.items()}
    return {"history": logs, "weights": sums(model)}


def trained(model, *data, **options):
    options = {"batch_size": 16, "epochs": 3, "shuffle": False, **options}
    return result(model, model.fit(*data, verbose=0, **options))


@case
def a_shuffled_epoch_has_every_sample_once():
    """Sample i is 2^i: their sum says which were seen, and how often.

    The first of all, since the others set seeds.
    """

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.seen = keras.metrics.Sum(name="seen")

        def call(self, x):
            return x

        def train_step(self, batch):
            self.seen.update_state(batch[0])
            return {"seen": self.seen.result()}

    with strategy.scope():
        model = Model()
        model.compile()
    x = 2.0 ** np.arange(16, dtype="float32")[:, None]
    history = model.fit(x, x, batch_size=4, epochs=3, shuffle=True, verbose=0)
    # What a train step logs is averaged over the workers.
    return [value * size for value in history.history["seen"]]


@case
def numpy_data():
    model = mlp()
    x, y = data()
    values = trained(model, x, y)
    values["evaluate"] = model.evaluate(x, y, batch_size=16, verbose=0)
    values["predict"] = model.predict(x, batch_size=16, verbose=0).tolist()
    values["direct"] = model(x).numpy().tolist()
    return values


@case
def unbuilt_model():
    return trained(mlp(built=False), *data())


@case
def tf_data():
    dataset = tf.data.Dataset.from_tensor_slices(data()).batch(16)
    return result_of_dataset(dataset)


@case
def distributed_dataset():
    dataset = tf.data.Dataset.from_tensor_slices(data()).batch(16)
    return result_of_dataset(strategy.experimental_distribute_dataset(dataset))


@case
def dataset_from_function():
    def make(context):
        batch = context.get_per_replica_batch_size(16)
        dataset = tf.data.Dataset.from_tensor_slices(data())
        dataset = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
        return dataset.batch(batch)

    return result_of_dataset(strategy.distribute_datasets_from_function(make))


def result_of_dataset(dataset):
    model = mlp()
    return result(model, model.fit(dataset, epochs=3, verbose=0))


@case
def unknown_cardinality():
    def generate():
        yield from zip(*data(), strict=True)

    spec = (tf.TensorSpec((4,), tf.float32), tf.TensorSpec((1,), tf.float32))
    dataset = tf.data.Dataset.from_generator(generate, output_signature=spec)
    return result_of_dataset(dataset.batch(16))


@case
def infinite_dataset():
    dataset = tf.data.Dataset.from_tensor_slices(data()).batch(16).repeat()
    model = mlp()
    return result(model, model.fit(dataset, epochs=3, steps_per_epoch=4, verbose=0))


@case
def dict_inputs():
    keras.utils.set_random_seed(rank)
    with strategy.scope():
        inputs = {k: keras.Input((2,), name=k) for k in ("a", "b")}
        merged = keras.layers.Concatenate()(list(inputs.values()))
        hidden = keras.layers.Dense(8, "relu", kernel_initializer=uniform(1))(merged)
        output = keras.layers.Dense(1, kernel_initializer=uniform(2))(hidden)
        model = keras.Model(inputs, output)
        model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
    x, y = data()
    return trained(model, {"a": x[:, :2], "b": x[:, 2:]}, y)


@case
def momentum():
    return trained(mlp(lambda: keras.optimizers.SGD(0.02, momentum=0.9)), *data())


@case
def adam():
    return trained(mlp(lambda: keras.optimizers.Adam(0.01)), *data())


def digits(optimizer):
    """Three epochs on scikit-learn's digits, in full batches."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x, y = (x[:1792] / 16).astype("float32"), y[:1792]
    keras.utils.set_random_seed(rank)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((64,)),
                keras.layers.Dense(32, "relu", kernel_initializer=uniform(1)),
                keras.layers.Dense(10, "softmax", kernel_initializer=uniform(2)),
            ]
        )
        model.compile(
            optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"]
        )
    values = trained(model, x, y, batch_size=64)
    values["all_weights"] = [w.tolist() for w in model.get_weights()]
    return values


@case
def digits_momentum():
    with strategy.scope():
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    return digits(optimizer)


@case
def digits_adam():
    with strategy.scope():
        optimizer = keras.optimizers.Adam(0.001)
    return digits(optimizer)


@case
def gradient_accumulation():
    def optimizer():
        return keras.optimizers.SGD(0.05, gradient_accumulation_steps=2)

    return trained(mlp(optimizer), *data(), epochs=2)


@case
def moving_average_of_weights():
    def optimizer():
        return keras.optimizers.SGD(0.05, use_ema=True, ema_overwrite_frequency=2)

    return trained(mlp(optimizer), *data())


@case
def steps_per_execution():
    return trained(mlp(steps_per_execution=3), *data())


@case
def run_eagerly():
    return trained(mlp(run_eagerly=True), *data(), epochs=1)


@case
def loss_scale():
    def optimizer():
        return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05))

    return trained(mlp(optimizer), *data())


@case
def an_infinity_on_one_worker():
    """All skip that step; in none of the others anybody waits."""
    with strategy.scope():
        optimizer = keras.optimizers.LossScaleOptimizer(
            keras.optimizers.SGD(0.05), initial_scale=2**15
        )
    model = mlp(lambda: optimizer)
    x, y = data()
    x[-1] = np.inf
    model.fit(x, y, batch_size=16, shuffle=False, verbose=0)
    state = optimizer.dynamic_scale.numpy(), optimizer.iterations.numpy()
    return [*map(float, state), *sums(model)]


@case
def synchronized_batch_norm():
    model = mlp(batch_norm=True)
    return trained(model, *data(), epochs=2)


@case
def batch_norm():
    model = mlp(batch_norm=False)
    trained(model, *data(), epochs=2)
    x, y = data()
    moving = model.layers[1].moving_mean.numpy().tolist()
    mse = float(np.mean((model(x, training=False).numpy() - y) ** 2))
    return {"moving_mean": moving, "mse": mse, "weights": sums(model)}


@case
def regularizers():
    keras.utils.set_random_seed(rank)
    with strategy.scope():
        regularizer = keras.regularizers.L1L2(0.01, 0.01)
        model = keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Dense(
                    8, kernel_initializer=uniform(1), kernel_regularizer=regularizer
                ),
                keras.layers.Dense(1, kernel_initializer=uniform(2)),
            ]
        )
        model.compile(keras.optimizers.SGD(0.05), "mse")
    x, y = data()
    values = trained(model, x, y, batch_size=12 if size != 5 else 10)
    values["evaluate"] = model.evaluate(x, y, batch_size=12, verbose=0)
    return values


@case
def embedding():
    keras.utils.set_random_seed(rank)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((3,), dtype="int32"),
                keras.layers.Embedding(20, 4, embeddings_initializer=uniform(1)),
                keras.layers.Flatten(),
                keras.layers.Dense(1, kernel_initializer=uniform(2)),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01), "mse")
    x = np.random.RandomState(1).randint(0, 20, (48, 3))
    return trained(model, x, x.sum(1, keepdims=True) / 60.0, batch_size=12)


@case
def string_inputs():
    keras.utils.set_random_seed(rank)
    words = np.array([f"word{i % 7}" for i in range(48)])
    with strategy.scope():
        inputs = keras.Input((), dtype="string")
        lookup = keras.layers.StringLookup(vocabulary=[f"word{i}" for i in range(7)])
        embedded = keras.layers.Embedding(8, 4, embeddings_initializer=uniform(1))(
            lookup(inputs)
        )
        output = keras.layers.Dense(1, kernel_initializer=uniform(2))(embedded)
        model = keras.Model(inputs, output)
        model.compile(keras.optimizers.SGD(0.1), "mse")
    y = np.arange(48, dtype="float32")[:, None] % 7
    dataset = tf.data.Dataset.from_tensor_slices((words, y)).batch(12)
    return result(model, model.fit(dataset, epochs=2, verbose=0))


@case
def uneven_sizes():
    """No size hangs; evaluate and predict are exact for all."""
    values = {}
    for n in (65, 66, 70, 17, 15, 1):
        model = mlp()
        x, y = data(n)
        model.fit(x, y, batch_size=16, epochs=1, shuffle=False, verbose=0)
        loss = model.evaluate(x, y, batch_size=16, verbose=0)[0]
        outputs = model.predict(x, batch_size=16, verbose=0)
        direct = model(x).numpy()
        values[n] = {
            "loss": [loss, float(np.mean((direct - y) ** 2))],
            "shape": list(outputs.shape),
            "difference": float(np.abs(outputs - direct).max()),
        }
    return values


@case
def workers_with_unequal_datasets():
    """Known and unknown cardinalities of 3 and 5 batches do not hang."""
    steps = {}
    for known in (True, False):

        def make(context, known=known):
            batches = 3 + 2 * min(context.input_pipeline_id, 1)
            dataset = tf.data.Dataset.from_tensor_slices(data()).batch(4)
            dataset = dataset.take(batches)
            return dataset if known else dataset.filter(lambda x, y: True)

        model = mlp()
        dataset = strategy.distribute_datasets_from_function(make)
        model.fit(dataset, epochs=2, verbose=0)
        steps[str(known)] = sums(model)
    return steps


@case
def train_on_batch():
    model = mlp()
    x, y = data(16)
    shard = slice(rank * 16 // size, (rank + 1) * 16 // size)
    logs = [model.train_on_batch(x[shard], y[shard]) for _ in range(2)]
    evaluated = model.test_on_batch(x[shard], y[shard])
    return {
        "logs": np.array(logs).tolist(),
        "test": np.array(evaluated).tolist(),
        "weights": sums(model),
    }


@case
def custom_loop():
    keras.utils.set_random_seed(rank)
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(1, kernel_initializer=uniform(1))]
        )
        optimizer = keras.optimizers.SGD(0.05)
    dataset = tf.data.Dataset.from_tensor_slices(data()).batch(16)

    def replica_step(x, y):
        with tf.GradientTape() as tape:
            error = tf.reduce_sum((model(x) - y) ** 2, axis=1)
            loss = tf.nn.compute_average_loss(error, global_batch_size=16)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(
            zip(gradients, model.trainable_variables, strict=True)
        )
        return loss

    @tf.function
    def step(batch):
        losses = strategy.run(replica_step, args=batch)
        return strategy.reduce("SUM", losses, axis=None)

    losses = [
        float(step(batch))
        for _ in range(2)
        for batch in strategy.experimental_distribute_dataset(dataset)
    ]
    return {"losses": losses, "weights": sums(model)}


@case
def loop_in_a_function():
    keras.utils.set_random_seed(rank)
    with strategy.scope():
        weight = tf.Variable(tf.ones([4, 1]))
    dataset = tf.data.Dataset.from_tensor_slices(data()).batch(16)
    distributed = strategy.experimental_distribute_dataset(dataset)

    def replica_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((x @ weight - y) ** 2) / 16
        gradient = tape.gradient(loss, weight)
        context = tf.distribute.get_replica_context()
        weight.assign_sub(0.05 * context.all_reduce("SUM", gradient))

    @tf.function
    def epoch():
        for batch in distributed:
            strategy.run(replica_step, args=batch)

    epoch()
    return weight.numpy().tolist()


@case
def collectives():
    value = tf.constant([rank + 1.0, 10.0])
    per_replica = strategy.run(lambda: value)
    rows = strategy.run(lambda: tf.fill([rank + 1, 2], float(rank)))
    columns = strategy.run(lambda: tf.fill([2, rank + 1], rank))

    def in_replica():
        context = tf.distribute.get_replica_context()
        return [
            context.all_reduce("SUM", {"a": value, "b": [value * 2]}),
            context.all_reduce("MEAN", tf.constant(rank)),
            context.all_gather(tf.constant([rank]), axis=0),
            context.replica_id_in_sync_group,
            context.num_replicas_in_sync,
        ]

    outputs = [
        strategy.reduce("SUM", per_replica, axis=None),
        strategy.reduce("MEAN", per_replica, axis=None),
        strategy.reduce("SUM", per_replica, axis=0),
        strategy.reduce("MEAN", rows, axis=0),
        strategy.reduce("SUM", {"x": per_replica, "y": (per_replica,)}, axis=None),
        strategy.gather(rows, axis=0),
        strategy.gather(columns, axis=1),
        strategy.run(in_replica),
        strategy.run(tf.function(in_replica)),
    ]
    return tf.nest.map_structure(lambda t: np.array(t).tolist(), outputs)


@case
def gradient_through_all_reduce():
    def in_replica():
        x = tf.constant([1.0 + rank])
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.distribute.get_replica_context().all_reduce("SUM", x)
            loss = tf.reduce_sum(total * total) * (rank + 1)
        return tape.gradient(loss, x)

    eager = strategy.run(in_replica)
    return [
        eager.numpy().tolist(),
        strategy.run(tf.function(in_replica)).numpy().tolist(),
    ]


@case
def initial_values_are_worker_0s():
    with strategy.scope():
        value = np.nan if rank else 3.0
        variables = [
            tf.Variable([value, 1.0]),
            tf.Variable(rank),
            tf.Variable(rank == 0),
            tf.Variable(lambda: tf.constant([value], tf.float16)),
            keras.Variable(keras.initializers.Constant(value), (2,)),
        ]
    return [np.array(v).tolist() for v in variables]


@case
def metrics_are_the_clusters():
    with strategy.scope():
        auc = keras.metrics.AUC()
        mean = keras.metrics.Mean()
    x = np.random.RandomState(2).rand(40)
    labels = (x + np.random.RandomState(3).rand(40) > 1).astype("float32")
    dataset = tf.data.Dataset.from_tensor_slices((labels, x)).batch(10)
    for batch in strategy.experimental_distribute_dataset(dataset):

        def update(y, p):
            auc.update_state(y, p)
            mean.update_state(p)

        strategy.run(update, args=batch)
    return [float(auc.result()), float(mean.result())]


@case
def custom_train_step():
    """Logs that are no metrics are averaged, so all workers see the same."""

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1, kernel_initializer=uniform(1))

        def call(self, x):
            return self.dense(x)

        def train_step(self, batch):
            x, y = batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(x) - y) ** 2)
                scaled = loss / strategy.num_replicas_in_sync
            gradients = tape.gradient(scaled, self.trainable_variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            return {"my_loss": loss}

    keras.utils.set_random_seed(rank)
    with strategy.scope():
        model = Model()
        model.compile(keras.optimizers.SGD(0.05))
    return trained(model, *data(48), batch_size=12)


@case
def chief_saves_alone():
    model = mlp(batch_norm=False)
    trained(model, *data(), epochs=1)
    before = runtime.current().native.counters() if size > 1 else None
    if rank == 0:
        path = os.environ["SCRATCH"]
        model.save(f"{path}/model.keras")
        model.save_weights(f"{path}/model.weights.h5")
        model.export(f"{path}/exported", verbose=False)
        tf.train.Checkpoint(model=model).write(f"{path}/checkpoint")
        loaded = keras.models.load_model(f"{path}/model.keras")
        for a, b in zip(loaded.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)
    if size > 1:
        after = runtime.current().native.counters()
        assert after["pushes"] == before["pushes"], "saving communicated"
    bps.barrier()
    return sums(model)


@case
def properties():
    extended = strategy.extended
    return {
        "replicas": strategy.num_replicas_in_sync,
        "chief": [extended.should_checkpoint, extended.should_save_summary],
        "devices": list(extended.worker_devices),
        "task": strategy.cluster_resolver.task_type,
        "values": strategy.experimental_local_results(
            strategy.experimental_distribute_values_from_function(
                lambda context: context.replica_id_in_sync_group
            )
        ),
        "size": [bps.size(), bps.rank(), bps.local_size(), bps.local_rank()],
    }


@case
def mistakes():
    model = mlp(jit_compile=True)
    x, y = data(16)
    outside = keras.optimizers.SGD(0.1)

    def mixed():
        with strategy.scope():
            other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
            other.compile(optimizer=outside, loss="mse")
        other.fit(x, y, batch_size=16, verbose=0)

    def wrapped():
        with strategy.scope():
            bps.DistributedOptimizer(keras.optimizers.SGD(0.1))

    return {
        "jit_compile": sentence(lambda: model.fit(x, y, batch_size=16, verbose=0)),
        "optimizer_outside": sentence(mixed),
        "wrapped_inside": sentence(wrapped),
        "device": sentence(lambda: bps.BytePSStrategy(device="GPU:7")),
        "options": sentence(lambda: bps.BytePSStrategy(options={"credit": 1})),
    }


if __name__ == "__main__":
    run_cases(CASES, os.environ.get("CASES", ""))
