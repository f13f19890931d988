"""What a worker of test_keras.py runs: Keras's ways to train, each by name.

Also run by one process alone, for the values that many must reach.
"""

import csv
import math
import os
import pathlib
import warnings

import keras
import numpy as np
import tensorflow as tf
from strategy_script import (
    data,
    mlp,
    rank,
    result,
    size,
    strategy,
    sums,
    trained,
    uniform,
)

import tf_byteps as bps
from support.worker import run_cases, sentence
from tf_byteps import runtime

CASES = {}
FOLDER = pathlib.Path(os.environ["SCRATCH"])


def case(function):
    CASES[function.__name__] = function
    return function


def model_of(*layers, loss="mse", optimizer=None, **options):
    """A compiled Sequential; worker 0's seed is another."""
    keras.utils.set_random_seed(rank)
    with strategy.scope():
        model = keras.Sequential([layer() for layer in layers])
        optimizer = optimizer() if optimizer else keras.optimizers.SGD(0.05)
        model.compile(optimizer, loss, **options)
    return model


def dense(units, seed, **options):
    return lambda: keras.layers.Dense(
        units, kernel_initializer=uniform(seed), **options
    )


def inputs(*shape, **options):
    return lambda: keras.Input(shape, **options)


# --- the whole batch, whatever the workers' parts --------------------------------


@case
def uneven_batches():
    """n = 65 and 17: the last batch has one sample, so one worker has none."""
    values = {}
    for n in (65, 70, 17, 15, 1):
        values[n] = trained(mlp(), *data(n))
    values["one epoch"] = trained(mlp(), *data(65), epochs=1)["weights"]
    return values


@case
def uneven_batches_in_other_ways():
    def accumulated():
        return keras.optimizers.SGD(0.05, gradient_accumulation_steps=2)

    values = {
        "accumulated": trained(mlp(accumulated), *data(67)),
        "eager": trained(mlp(run_eagerly=True), *data(17), epochs=1),
        "several a call": trained(mlp(steps_per_execution=3), *data(67)),
        "evaluated": mlp().evaluate(*data(19), batch_size=8, verbose=0),
    }
    regularizer = keras.regularizers.L2(0.1)
    model = model_of(
        inputs(4), dense(3, 1, kernel_regularizer=regularizer), dense(1, 2)
    )
    values["regularized"] = trained(model, *data(17))
    model = mlp(loss_weights=[0.5])
    values["weighted"] = trained(model, *data(17))
    return values


@case
def uneven_batch_norm():
    """A worker with no sample adds nothing; the others count by their samples."""
    values = {}
    for n in (9, 1):  # one batch, of 5 + 4 samples and of 1 + 0
        model = mlp(batch_norm=False)
        trained(model, *data(n), epochs=1)
        values[n] = model.layers[1].moving_mean.numpy().tolist()
    for options in ({}, {"gradient_accumulation_steps": 2}, {"clipnorm": 1.0}):
        model = mlp(lambda o=options: keras.optimizers.SGD(0.01, **o), batch_norm=False)
        trained(model, *data(17), epochs=1)
        assert all(np.isfinite(w).all() for w in model.get_weights())
    return values


@case
def uneven_synchronized_batch_norm():
    return trained(mlp(batch_norm=True), *data(18), epochs=1)


@case
def losses_that_are_sums():
    loss = keras.losses.MeanSquaredError(reduction="sum")
    model = model_of(inputs(4), dense(1, 1), loss=loss)
    model.optimizer.learning_rate = 0.002
    return trained(model, *data(19))


@case
def masked_losses():
    """Sentences of unequal length: valid steps count, wherever they are."""
    x = np.random.RandomState(4).randint(1, 9, (19, 6))
    for i, row in enumerate(x):
        row[1 + i % 5 :] = 0
    model = model_of(
        inputs(6, dtype="int32"),
        lambda: keras.layers.Embedding(
            9, 4, mask_zero=True, embeddings_initializer=uniform(1)
        ),
        dense(1, 2),
    )
    values = trained(model, x, x[..., None] / 9.0, batch_size=8)
    values["evaluate"] = model.evaluate(x, x[..., None] / 9.0, batch_size=8, verbose=0)
    return values


@case
def weighted_samples():
    x, y = data(19)
    weights = np.arange(19.0) % 3
    values = {"plain": trained(mlp(), x, y, sample_weight=weights)}
    loss = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    model = model_of(inputs(4), dense(1, 1), loss=loss, weighted_metrics=["mae"])
    values["by weight"] = trained(model, x, y, sample_weight=weights)
    labels = (y[:, 0] > 4).astype("int32")
    model = model_of(
        inputs(4),
        dense(2, 1, activation="softmax"),
        loss="sparse_categorical_crossentropy",
    )
    values["classes"] = trained(model, x, labels, class_weight={0: 1.0, 1: 3.0})
    return values


@case
def clipping():
    """Of the gradient of the whole batch."""
    values = {}
    x, y = data()
    for name, clip in (
        ("global_clipnorm", 0.5),
        ("clipnorm", 0.5),
        ("clipvalue", 0.1),
    ):

        def optimizer(name=name, clip=clip):
            return keras.optimizers.SGD(0.05, **{name: clip})

        values[name] = trained(mlp(optimizer), x, y, epochs=1)

    def accumulated():
        return keras.optimizers.SGD(
            0.05, global_clipnorm=0.5, gradient_accumulation_steps=2
        )

    def scaled():
        return keras.optimizers.LossScaleOptimizer(
            keras.optimizers.SGD(0.05, global_clipnorm=0.5), initial_scale=8
        )

    values["accumulated"] = trained(mlp(accumulated), x, y, epochs=1)
    values["scaled"] = trained(mlp(scaled), x, y, epochs=1)
    # Gradients of -1 and -3 in four equal elements: their sum is clipped, not they.
    model = model_of(
        inputs(4),
        lambda: keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros"),
        optimizer=lambda: keras.optimizers.SGD(1.0, global_clipnorm=1.0),
    )
    x, y = np.ones((2, 4), "float32"), np.array([[1.0], [3.0]], "float32")
    values["known"] = trained(model, x, y, batch_size=2, epochs=1)["weights"]
    return values


# --- random numbers --------------------------------------------------------------


@case
def dropout_masks():
    """Each worker's own, and the same when all is done again."""

    def masks():
        keras.utils.set_random_seed(7)
        with strategy.scope():
            layer = keras.layers.Dropout(0.5)
        draw = tf.function(lambda: layer(tf.ones([1, 64]), training=True) > 0)
        drawn = [strategy.run(draw).numpy()[0].tolist() for _ in range(2)]
        plain = tf.function(lambda: tf.random.uniform([4]))
        drawn.append(strategy.run(plain).numpy().tolist())
        drawn.append(strategy.run(lambda: tf.random.uniform([4])).numpy().tolist())
        state = layer.seed_generator.state.numpy().tolist()
        return {"drawn": drawn, "state": state}

    return [masks(), masks()]


@case
def same_bits_again():
    """Trained twice with the same seed and deterministic operations."""

    def weights():
        keras.utils.set_random_seed(3)
        with strategy.scope():
            model = keras.Sequential(
                [
                    keras.Input((4,)),
                    keras.layers.Dense(16, "relu"),
                    keras.layers.Dropout(0.2),
                    keras.layers.BatchNormalization(),
                    keras.layers.Dense(1),
                ]
            )
            model.compile("adam", "mse")
        model.fit(*data(), batch_size=16, epochs=2, verbose=0)
        return b"".join(w.tobytes() for w in model.get_weights()).hex()

    return [weights(), weights()]


# --- data ------------------------------------------------------------------------


def aligned(array):
    """A copy that TensorFlow uses where it lies, since it lies at 64 bytes."""
    memory = np.zeros(array.size + 16, array.dtype)
    begin = -memory.ctypes.data % 64 // array.itemsize
    copy = memory[begin : begin + array.size].reshape(array.shape)
    copy[:] = array
    return copy


class Batches(keras.utils.PyDataset):
    def __init__(self, n=64):
        super().__init__()
        self.x, self.y = map(aligned, data(n))

    def __len__(self):
        return math.ceil(len(self.x) / 16)

    def __getitem__(self, i):
        part = slice(16 * i, 16 * i + 16)
        return self.x[part], self.y[part]


@case
def data_of_every_kind():
    def generate():
        batches = Batches()
        while True:
            yield from (batches[i] for i in range(len(batches)))

    def dataset(n=64):
        return tf.data.Dataset.from_tensor_slices(data(n)).batch(16)

    def fit(*args, **options):
        model = mlp()
        history = model.fit(*args, verbose=0, shuffle=False, **options)
        return result(model, history)

    x, y = data()
    validation = data(40)
    return {
        "generator": fit(generate(), epochs=2, steps_per_epoch=4),
        "PyDataset": fit(Batches(), epochs=2),
        "uneven PyDataset": fit(Batches(70), epochs=2),
        "tensors": fit(tf.constant(x), tf.constant(y), batch_size=16, epochs=2),
        "validation": fit(x, y, batch_size=16, epochs=2, validation_data=validation),
        "validated by a dataset": fit(
            dataset(), epochs=2, validation_data=dataset(33), validation_freq=2
        ),
        "split": fit(x, y, batch_size=16, epochs=2, validation_split=0.2),
        "later": fit(x, y, batch_size=16, epochs=4, initial_epoch=2),
        "some steps": fit(dataset().repeat(), epochs=3, steps_per_epoch=3),
        "fewer batches than workers": fit(x[:8], y[:8], batch_size=8, epochs=2),
        "less than a sample each": fit(x[:1], y[:1], batch_size=1, epochs=2),
        "validation steps": fit(
            x, y, batch_size=16, validation_data=dataset(), validation_steps=2
        ),
    }


@case
def structures_of_elements():
    """What a dataset is of is what a replica gets; the user's arrays are left alone."""
    x, y = map(aligned, data(12))
    before = x.copy(), y.copy()

    def generate():
        yield x[:8], y[:8]
        yield x[8:], y[8:]

    spec = (tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1)))
    pairs = tf.data.Dataset.from_generator(generate, output_signature=spec)
    totals = []
    for dataset in (
        pairs,
        pairs.map(lambda x, y: (x,)),
        pairs.map(lambda x, y: x),
        pairs.map(lambda x, y: {"b": y, "a": (x, [])}),
        pairs.map(lambda x, y: tf.RaggedTensor.from_tensor(x)),
        pairs.map(lambda x, y: (tf.sparse.from_dense(x), tf.strings.as_string(y))),
    ):
        distributed = strategy.experimental_distribute_dataset(dataset)
        totals.append(sum(1 for _ in distributed))
        structure = tf.nest.map_structure(lambda _: 0, dataset.element_spec)
        for element in distributed:
            tf.nest.assert_same_structure(element, structure)
    model = mlp()
    totals.append(result(model, model.fit(pairs, epochs=2, verbose=0)))
    assert all((a == b).all() for a, b in zip(before, (x, y), strict=True))
    return totals


@case
def the_end_of_data_of_unknown_length():
    dataset = tf.data.Dataset.from_tensor_slices(data()).batch(16)
    dataset = dataset.filter(lambda x, y: True)
    model = mlp()
    values = result(model, model.fit(dataset, epochs=3, verbose=0))
    # 15, not 12: Keras's step counts once more when it finds no batch.
    values["iterations"] = int(model.optimizer.iterations.numpy())
    values["loss"] = model.evaluate(dataset, verbose=0)
    values["predict"] = model.predict(dataset, verbose=0).tolist()
    return values


@case
def tails():
    """Datasets whose end is found inside one call of several steps."""
    values = {}
    for n in (70, 33):
        dataset = tf.data.Dataset.from_tensor_slices(data(n)).batch(16)
        model = mlp(steps_per_execution=4)
        fitted = result(model, model.fit(dataset, epochs=2, verbose=0))
        predicted = model.predict(dataset.map(lambda x, y: x), verbose=0)
        values[n] = [fitted, list(predicted.shape), predicted.tolist()]
    return values


@case
def one_batch_alone():
    model = mlp()
    x, y = data(6)
    part = slice(0, 4) if rank == 0 else slice(4, 6)
    if size == 1:
        part = slice(0, 6)
    logs = [float(v) for v in model.train_on_batch(x[part], y[part])]
    predicted = model.predict_on_batch(x[part])
    return [logs, sums(model), predicted.tolist()]


# --- models ----------------------------------------------------------------------


@case
def losses_of_layers_and_models():
    class Penalty(keras.layers.Layer):
        def call(self, x):
            self.add_loss(0.1 * keras.ops.mean(x**2))
            return x

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1, kernel_initializer=uniform(1))

        def call(self, x):
            return self.dense(x)

        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            own = super().compute_loss(x, y, y_pred, sample_weight)
            return 2 * own

    keras.utils.set_random_seed(rank)
    with strategy.scope():
        subclassed = Own()
        subclassed.compile(keras.optimizers.SGD(0.05), "mse")
    return {
        "add_loss": trained(model_of(inputs(4), Penalty, dense(1, 1)), *data(19)),
        "compute_loss": trained(subclassed, *data(19)),
    }


class Both(keras.metrics.Metric):
    """A metric of two values."""

    def __init__(self):
        super().__init__(name="both")
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(keras.ops.sum(y_pred))
        self.count.assign_add(keras.ops.cast(keras.ops.size(y_pred), "float32"))

    def result(self):
        return {"sum": self.total, "mean": self.total / self.count}


@case
def metrics_of_every_kind():
    keras.utils.set_random_seed(rank)
    with strategy.scope():
        x = keras.Input((4,))
        shared = keras.layers.Dense(6, "relu", kernel_initializer=uniform(1))(x)
        a = keras.layers.Dense(1, "sigmoid", name="a", kernel_initializer=uniform(2))(
            shared
        )
        b = keras.layers.Dense(1, name="b", kernel_initializer=uniform(3))(shared)
        model = keras.Model(x, {"a": a, "b": b})
        model.compile(
            keras.optimizers.AdamW(0.01, weight_decay=0.1),
            {"a": "binary_crossentropy", "b": "mse"},
            loss_weights={"a": 1.0, "b": 0.5},
            metrics={
                "a": [
                    keras.metrics.AUC(name="auc"),
                    keras.metrics.F1Score(threshold=0.5, name="f1"),
                    keras.metrics.Precision(name="precision"),
                    "accuracy",
                ],
                "b": ["mae", Both(), keras.metrics.R2Score(name="r2")],
            },
        )
    x, y = data(35)
    y = {"a": (y > 4).astype("float32"), "b": y}
    history = model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
    evaluated = model.evaluate(x, y, batch_size=16, verbose=0, return_dict=True)
    predicted = model.predict(x, batch_size=16, verbose=0)
    return {
        "history": {
            name: np.array(values).tolist() for name, values in history.history.items()
        },
        "evaluated": {name: np.array(v).tolist() for name, v in evaluated.items()},
        "predicted": {name: v.tolist() for name, v in predicted.items()},
    }


@case
def recurrent():
    x = np.random.RandomState(5).rand(18, 5, 3).astype("float32")
    model = model_of(
        inputs(5, 3),
        lambda: keras.layers.LSTM(
            4, kernel_initializer=uniform(1), recurrent_initializer=uniform(2)
        ),
        dense(1, 3),
        optimizer=lambda: keras.optimizers.RMSprop(0.01),
    )
    return trained(model, x, x.sum((1, 2))[:, None], batch_size=8)


@case
def half_precision():
    """With a loss scale at which nothing is infinite: it depends on the parts."""

    def optimizer():
        sgd = keras.optimizers.SGD(0.05)
        return keras.optimizers.LossScaleOptimizer(sgd, initial_scale=64)

    values = {}
    for name in ("mixed_float16", "mixed_bfloat16"):
        keras.config.set_dtype_policy(name)
        try:
            model = mlp(optimizer)
        finally:
            keras.config.set_dtype_policy("float32")
        values[name] = trained(model, *data(), epochs=2)
    return values


@case
def sparse_gradients():
    """Rows travel: far fewer bytes than the table has. One worker may have none."""
    values = {}
    for optimizer in ("SGD", "Adam", "Adagrad"):
        model = model_of(
            inputs(3, dtype="int32"),
            lambda: keras.layers.Embedding(5000, 8, embeddings_initializer=uniform(1)),
            lambda: keras.layers.Flatten(),
            dense(1, 2),
            optimizer=lambda o=optimizer: getattr(keras.optimizers, o)(0.01),
        )
        x = np.random.RandomState(1).randint(0, 20, (17, 3))
        y = x.sum(1, keepdims=True) / 60.0
        trained(model, x, y, epochs=1)  # and the first values of the optimizer
        before = _bytes_pushed()
        values[optimizer] = trained(model, x, y)
        assert _bytes_pushed() - before < 5000 * 8 * 4
    return values


def _bytes_pushed():
    return _counted("bytes_pushed")


def _counted(name):
    native = runtime.current().native
    return 0 if native is None else native.counters()[name]


@case
def messages_of_a_step():
    """Pushes of a worker for each step, by the difference of four and two steps."""

    def of(call):
        counts = []
        for steps in (2, 2, 4):  # the first one traces
            before = _counted("pushes")
            call(*data(16 * steps))
            counts.append(_counted("pushes") - before)
        return (counts[2] - counts[1]) / 2

    def of_dataset(x, y):
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
        model.fit(dataset, verbose=0)

    model, normalized = mlp(), mlp(batch_norm=False)
    several = mlp(steps_per_execution=2)
    options = {"batch_size": 16, "verbose": 0}
    return {
        "fit": of(lambda x, y: model.fit(x, y, **options)),
        "fit a dataset": of(of_dataset),
        "BatchNormalization": of(lambda x, y: normalized.fit(x, y, **options)),
        "two steps a call": of(lambda x, y: several.fit(x, y, **options)),
        "evaluate": of(lambda x, y: model.evaluate(x, y, **options)),
    }


@case
def several_steps_a_call():
    """The same bits as step by step, also when the last call has fewer steps."""

    def bits(**options):
        model = mlp(lambda: keras.optimizers.Adam(0.01), batch_norm=False, **options)
        trained(model, *data(96), epochs=2)
        return b"".join(w.tobytes() for w in model.get_weights()).hex()

    return [bits(), bits(steps_per_execution=4)]


# --- callbacks -------------------------------------------------------------------


def shared_folder(name):
    """The same on all workers: they share a scratch folder."""
    path = FOLDER / name
    path.mkdir(exist_ok=True)
    return path


class Writes(keras.callbacks.Callback):
    """What is there at the end of each epoch."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(sorted(p.name for p in self.folder.glob("*.h5")))


@case
def callbacks_that_write():
    folder = shared_folder("written")
    model = mlp()
    callbacks = [
        keras.callbacks.ModelCheckpoint(
            folder / "{epoch}.weights.h5", save_weights_only=True
        ),
        keras.callbacks.ModelCheckpoint(
            folder / "best.keras", monitor="loss", save_best_only=True
        ),
        keras.callbacks.CSVLogger(folder / "log.csv"),
        Writes(folder),
        keras.callbacks.TensorBoard(folder / "board"),
    ]
    history = model.fit(
        *data(), batch_size=16, epochs=2, shuffle=False, verbose=0, callbacks=callbacks
    )
    bps.barrier()
    with open(folder / "log.csv") as file:
        rows = list(csv.DictReader(file))
    loaded = keras.models.load_model(folder / "best.keras")
    return {
        "history": history.history["loss"],
        "csv": [float(row["loss"]) for row in rows],
        "best": callbacks[1].best,
        "files": callbacks[3].seen,
        "boards": len(list((folder / "board").rglob("*tfevents*"))),
        "same": bool(
            all(
                (a == b).all()
                for a, b in zip(loaded.get_weights(), model.get_weights(), strict=True)
            )
        ),
    }


@case
def callbacks_that_decide():
    x, y = data()
    stop = keras.callbacks.EarlyStopping(
        "loss", min_delta=1.0, patience=1, restore_best_weights=True
    )
    reduce = keras.callbacks.ReduceLROnPlateau("loss", min_delta=5.0, patience=1)
    schedule = keras.callbacks.LearningRateScheduler(lambda e, lr: 0.05 / (e + 1))
    values = {}
    for name, callback in (("stop", stop), ("reduce", reduce), ("plan", schedule)):
        model = mlp()
        values[name] = trained(model, x, y, epochs=5, callbacks=[callback])
        values[name]["rate"] = float(model.optimizer.learning_rate.numpy())
    # One worker's NaN is everybody's.
    y = y.copy()
    y[-1] = np.nan
    model = mlp()
    history = model.fit(
        x,
        y,
        batch_size=16,
        epochs=3,
        shuffle=False,
        verbose=0,
        callbacks=[keras.callbacks.TerminateOnNaN()],
    )
    values["nan epochs"] = len(history.history["loss"])
    return values


@case
def a_progress_bar():
    print("bar begins")
    mlp().fit(*data(), batch_size=16, verbose=2)
    print("bar ends", flush=True)


@case
def swapped_averages():
    def optimizer():
        return keras.optimizers.SGD(0.05, use_ema=True)

    swap = keras.callbacks.SwapEMAWeights()
    x, y = data()
    return trained(
        mlp(optimizer), x, y, callbacks=[swap], validation_data=(x[:16], y[:16])
    )


# --- saving ----------------------------------------------------------------------


@case
def saved():
    """For a process without tf_byteps; see test_keras.py."""
    folder = shared_folder("saved")
    model = mlp(batch_norm=False)
    trained(model, *data(), epochs=1)
    if rank == 0:
        model.save(folder / "model.keras")
        model.save_weights(folder / "model.weights.h5")
        model.export(folder / "exported", verbose=False)
        tf.saved_model.save(model, str(folder / "saved_model"))
        tf.train.Checkpoint(model=model).write(str(folder / "checkpoint"))
    bps.barrier()
    x, _ = data(8)
    return model(x, training=False).numpy().tolist()


@case
def loaded_in_scope():
    """Goes on as if it had not been saved."""
    folder = shared_folder("loaded")
    model = mlp(lambda: keras.optimizers.Adam(0.01))
    trained(model, *data(), epochs=1)
    if rank == 0:
        model.save(folder / "model.keras")
    bps.barrier()
    with strategy.scope():
        again = keras.models.load_model(folder / "model.keras")
    return [trained(m, *data(), epochs=1)["weights"] for m in (model, again)]


# --- mistakes --------------------------------------------------------------------


@case
def mistakes():
    """Each is an error on all workers, and the next `fit` works."""
    x, y = data()

    def fit(model=None, *args, **options):
        options = {"batch_size": 16, "verbose": 0, **options}
        (model or mlp()).fit(*(args or (x, y)), **options)

    auc = keras.metrics.AUC()
    local = model_of(inputs(4), dense(1, 1), metrics=[auc])

    off = tf.data.Options()
    off.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)

    own = dataset.take(2 + rank)
    validation = (x, y) if rank == 0 else None
    values = {
        "metric_outside": sentence(fit, local),
        "off": sentence(mlp().fit, dataset.with_options(off), verbose=0),
        "epochs": sentence(fit, epochs=1 + rank),
        "models": sentence(model_of, inputs(4), dense(1 + rank, 1)),
        "samples": sentence(fit, None, x[: 32 + rank], y[: 32 + rank]),
        "datasets": sentence(mlp().fit, own, verbose=0),
        "evaluated": sentence(mlp().evaluate, own, verbose=0),
        "validation": sentence(fit, validation_data=validation),
        "batch_size": sentence(fit, batch_size=8 * (1 + rank)),
    }
    fit()
    return values


@case
def warnings_given():
    """None that one process does not give."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = mlp()
        x, y = data()
        model.fit(x, y, batch_size=16, epochs=2, verbose=0, validation_split=0.25)
        model.predict(x, verbose=0)
    return sorted({str(warning.message) for warning in caught})


if __name__ == "__main__":
    run_cases(CASES, os.environ.get("CASES", ""))
