"""Trains a model of three layers, two of them large; the test reads the record."""

import os

import keras
import numpy as np

import tf_byteps as bps
from support.worker import report, sentence

strategy = bps.BytePSStrategy()
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(1024, name="first"),
            keras.layers.Dense(8, name="second"),
            keras.layers.Dense(1, name="third"),
        ]
    )
    model.compile("sgd", "mse")
x = np.arange(64 * 8, dtype=np.float32).reshape(64, 8) / 512
model.fit(x, x[:, :1], batch_size=16, epochs=1, shuffle=False, verbose=0)

if bps.rank() == 0:
    folder = os.environ["TF_BYTEPS_TIMELINE"]
    report("twice", sentence(bps.start_timeline, folder))
    bps.stop_timeline()
    report("nowhere", sentence(bps.start_timeline, "/dev/null/x"))
    bps.start_timeline(folder)
bps.push_pull(np.ones(3, np.float32), "again")
