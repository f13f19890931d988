"""A script for MultiWorkerMirroredStrategy and model.fit, with one line changed."""

import os
import tempfile

import keras
import numpy as np
import tensorflow as tf

from tf_byteps import BytePSStrategy

strategy = BytePSStrategy()  # tf.distribute.MultiWorkerMirroredStrategy()

per_worker_batch_size = 16
global_batch_size = per_worker_batch_size * strategy.num_replicas_in_sync


def make_dataset():
    random = np.random.RandomState(0)
    x = random.rand(256, 8).astype("float32")
    y = (x.sum(1) * 1.5).astype("int64") % 4
    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    return dataset.shuffle(256).repeat().batch(global_batch_size)


with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(4),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(learning_rate=0.1),
        metrics=["accuracy"],
    )

folder = os.environ["SCRATCH"]
history = model.fit(
    make_dataset(),
    epochs=3,
    steps_per_epoch=8,
    verbose=2,
    callbacks=[keras.callbacks.BackupAndRestore(os.path.join(folder, "backup"))],
)


def is_chief(task_type, task_id):
    return task_type == "worker" and task_id == 0


# Every worker saves, and all but one to a place that does not matter.
resolver = strategy.cluster_resolver
task_type, task_id = resolver.task_type, resolver.task_id
name = "model.keras"
path = os.path.join(folder, name)
if not is_chief(task_type, task_id):
    path = os.path.join(tempfile.mkdtemp(), name)
model.save(path)
loaded = keras.models.load_model(path)
loaded.fit(make_dataset(), epochs=1, steps_per_epoch=2, verbose=0)
print(f"RESULT {history.history['loss'][-1]:.6f}", flush=True)
