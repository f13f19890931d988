"""Trains a model of three layers for a few steps; the test reads what was recorded."""

import keras
import numpy as np

import tf_byteps as bps

strategy = bps.BytePSStrategy()
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(6, name="first"),
            keras.layers.Dense(4, name="second"),
            keras.layers.Dense(1, name="third"),
        ]
    )
    model.compile("sgd", "mse")
x = np.arange(64 * 8, dtype=np.float32).reshape(64, 8) / 512
model.fit(x, x[:, :1], batch_size=16, epochs=1, shuffle=False, verbose=0)
