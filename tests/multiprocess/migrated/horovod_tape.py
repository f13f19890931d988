"""A custom loop for Horovod, with its import and allreduce's name changed."""

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as hvd  # import horovod.tensorflow as hvd

hvd.init()
random = np.random.RandomState(hvd.rank())
x = random.rand(64 + 16 * hvd.rank(), 8).astype("float32")
y = (x.sum(1) > 4).astype("int64")
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)

model = keras.Sequential([keras.layers.Dense(16, "relu"), keras.layers.Dense(2)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
opt = keras.optimizers.SGD(0.01 * hvd.size())


@tf.function
def training_step(images, labels, first_batch):
    with tf.GradientTape() as tape:
        loss_value = loss(labels, model(images, training=True))
    tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16)
    grads = tape.gradient(loss_value, model.trainable_variables)
    opt.apply_gradients(zip(grads, model.trainable_variables, strict=True))
    if first_batch:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(opt.variables, root_rank=0)
    return loss_value


for batch, (images, labels) in enumerate(dataset):
    value = training_step(images, labels, batch == 0)
last = hvd.join()
hvd.broadcast_variables(model.variables, root_rank=last)

total = hvd.push_pull(value, name="loss", op=hvd.Average)  # hvd.allreduce
rows = hvd.allgather(tf.fill([hvd.rank() + 1], hvd.rank()))
names = hvd.allgather_object(f"worker {hvd.rank()}")
same = hvd.broadcast_object({"epoch": 3} if hvd.rank() == 0 else None, root_rank=0)
assert len(rows) == sum(range(1, hvd.size() + 1)) and same == {"epoch": 3}
assert names[hvd.local_rank()] == f"worker {hvd.rank()}" and hvd.local_size() == 2
weights = sum(float(tf.reduce_sum(v)) for v in model.trainable_variables)
print(f"RESULT {float(total) + weights:.6f}", flush=True)
hvd.shutdown()
