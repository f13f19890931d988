"""A script for BytePS, with its import changed."""

import numpy as np
import tensorflow as tf

import tf_byteps as bps  # import byteps.tensorflow as bps

bps.init()
random = np.random.RandomState(bps.rank())
x = random.rand(64, 8).astype("float32")
y = (x.sum(1) > 4).astype("int64")
dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().shuffle(64).batch(16)

model = tf.keras.Sequential(
    [tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(2)]
)
loss = tf.losses.SparseCategoricalCrossentropy(from_logits=True)
opt = tf.optimizers.Adam(0.001 * bps.size())


@tf.function
def training_step(images, labels, first_batch):
    with tf.GradientTape() as tape:
        loss_value = loss(labels, model(images, training=True))
    tape = bps.DistributedGradientTape(tape)
    grads = tape.gradient(loss_value, model.trainable_variables)
    opt.apply_gradients(zip(grads, model.trainable_variables))  # noqa: B905
    if first_batch:
        bps.broadcast_variables(model.variables, root_rank=0)
        bps.broadcast_variables(opt.variables, root_rank=0)
    return loss_value


for batch, (images, labels) in enumerate(dataset.take(20 // bps.size())):
    value = training_step(images, labels, batch == 0)
    if batch % 5 == 0 and bps.local_rank() == 0:
        print(f"Step #{batch}\tLoss: {value:.6f}")
weights = sum(float(tf.reduce_sum(v)) for v in model.trainable_variables)
print(f"RESULT {weights:.6f}", flush=True)
