"""A Keras script for Horovod, with its import changed."""

import os

import keras
import numpy as np

import tf_byteps as hvd  # import horovod.tensorflow.keras as hvd

hvd.init()
random = np.random.RandomState(hvd.rank())
x = random.rand(128, 8).astype("float32")
y = (x.sum(1) > 4).astype("int64")

model = keras.Sequential(
    [keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(2)]
)
scaled_lr = 0.01 * hvd.size()
opt = hvd.DistributedOptimizer(
    keras.optimizers.Adam(scaled_lr),
    backward_passes_per_step=1,
    average_aggregated_gradients=True,
    compression=hvd.Compression.none,
)
model.compile(
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    optimizer=opt,
    metrics=["accuracy"],
)
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(
        initial_lr=scaled_lr, warmup_epochs=2, verbose=1
    ),
]
path = os.path.join(os.environ["SCRATCH"], "model.keras")
if hvd.rank() == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint(path))
verbose = 1 if hvd.rank() == 0 else 0
history = model.fit(x, y, batch_size=16, callbacks=callbacks, epochs=3, verbose=verbose)
hvd.barrier()
loaded = hvd.load_model(path)
loaded.fit(x, y, batch_size=16, epochs=1, verbose=0)
print(f"RESULT {history.history['loss'][-1]:.6f}", flush=True)
