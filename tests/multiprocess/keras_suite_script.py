"""What a worker of test_keras_suite.py runs: Keras's own tests of tf.distribute.

The installed package has them, written for a MirroredStrategy on two CPUs of one
process. Here the two replicas are two workers'. All run the same tests in the same
order. Reports what came of each; what is left out, and why; and in its place what a
replica sees.
"""

import importlib
import unittest
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

import tf_byteps as bps
from support.worker import outcome, report

# Module: which of its tests; none: all.
MODULES = {
    "backend.tensorflow.distribute_test": (),
    "backend.tensorflow.optimizer_distribute_test": (),
    "callbacks.swap_ema_weights_test": ("test_swap_ema_weights_with_tf_distribute",),
}
LEFT_OUT = {
    "DistributeTest.test_strategy_run": "looks at both replicas' outputs",
    "DistributeTest.test_epoch_iterator": "looks at both replicas' batches",
    # MirroredStrategy adds up what replicas hold, and here they hold one object.
    "OptimizerDistributeTest.test_ema": "its two gradients are one tensor in a process",
}


def tests():
    """Yields (name, instance) of each test."""
    for module, chosen in MODULES.items():
        loaded = unittest.defaultTestLoader.loadTestsFromModule(
            importlib.import_module(f"keras.src.{module}")
        )
        for suite in loaded:
            for test in suite:
                method = test.id().rpartition(".")[2]
                if not chosen or method in chosen:
                    yield f"{type(test).__name__}.{method}", test


def a_replicas_output(strategy):
    """A model's output for [rank + 1, ...], eagerly and in a function."""
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(2, kernel_initializer="ones")]
        )
    inputs = strategy.experimental_distribute_values_from_function(
        lambda context: tf.fill([8, 4], context.replica_id_in_sync_group + 1.0)
    )
    return [
        strategy.run(run, args=(inputs,)).numpy().tolist()
        for run in (model, tf.function(model))
    ]


def a_replicas_batches(strategy):
    """[first of x, its shape and those of y and weights], batch by batch.

    Of 100 rows in global batches of 16; a row holds its number.
    """
    seen = []

    class Model(keras.Model):
        def call(self, x):
            return x

        def train_step(self, data):
            x, y, weights = data
            seen.append([int(x[0, 0]), *(list(v.shape) for v in (x, y, weights))])
            return {"seen": len(seen)}

    with strategy.scope():
        model = Model()
        model.compile(run_eagerly=True)
    rows = np.arange(100.0)
    model.fit(
        np.repeat(rows[:, np.newaxis], 3, axis=1),
        np.repeat(rows[:, np.newaxis], 2, axis=1),
        sample_weight=rows,
        batch_size=16,
        shuffle=False,
        verbose=0,
    )
    return seen


def moving_averages(strategy):
    """[variable, its average] after steps of r + 1 on replica r, three times."""
    with strategy.scope():
        variable = keras.Variable(10.0)
        optimizer = keras.optimizers.SGD(
            1.0, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3
        )

    def step():
        gradient = tf.constant(bps.rank() + 1.0)
        optimizer.apply([gradient], [variable])

    seen = []
    for run in (step, tf.function(step), step):
        strategy.run(run)
        (average,) = optimizer._model_variables_moving_average
        seen.append([float(v.numpy()) for v in (variable, average)])
    return seen


def main():
    strategy = bps.BytePSStrategy()
    with strategy.scope():
        tf.Variable(0.0)  # some tests train a model outside of the scope, on purpose
    outcomes = {}
    with (
        mock.patch.object(tf.distribute, "MirroredStrategy", lambda devices: strategy),
        # The tests would make a second CPU.
        mock.patch.object(context, "_reset_context", lambda: None),
        mock.patch.object(
            tf.config, "set_logical_device_configuration", lambda *_: None
        ),
    ):
        for name, test in tests():
            outcomes[name] = "left out" if name in LEFT_OUT else outcome(test)
    report("outcomes", outcomes)
    report("output", a_replicas_output(strategy))
    report("batches", a_replicas_batches(strategy))
    report("averages", moving_averages(strategy))
    report("left out", LEFT_OUT)


if __name__ == "__main__":
    main()
