"""A custom loop for MultiWorkerMirroredStrategy, with one line changed."""

import os
import tempfile

import keras
import numpy as np
import tensorflow as tf

from tf_byteps import BytePSStrategy

strategy = BytePSStrategy()  # tf.distribute.MultiWorkerMirroredStrategy()

num_epochs = 3
num_steps_per_epoch = 6
batch_size = 16 * strategy.num_replicas_in_sync


def dataset_fn(global_batch_size, input_context):
    batch = input_context.get_per_replica_batch_size(global_batch_size)
    random = np.random.RandomState(0)
    x = random.rand(192, 8).astype("float32")
    y = (x.sum(1) > 4).astype("int64")
    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    dataset = dataset.shard(
        input_context.num_input_pipelines, input_context.input_pipeline_id
    )
    return dataset.shuffle(192).repeat().batch(batch)


with strategy.scope():
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(2)]
    )
    dataset = strategy.distribute_datasets_from_function(
        lambda context: dataset_fn(batch_size, context)
    )
    optimizer = keras.optimizers.RMSprop(learning_rate=0.01)
    accuracy = keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")


@tf.function
def train_step(iterator):
    def step_fn(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            predictions = model(x, training=True)
            per_example = keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction=None
            )(y, predictions)
            loss = tf.nn.compute_average_loss(per_example)
            model_losses = model.losses
            if model_losses:
                loss += tf.nn.scale_regularization_loss(tf.add_n(model_losses))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(
            zip(gradients, model.trainable_variables, strict=True)
        )
        accuracy.update_state(y, predictions)
        return loss

    losses = strategy.run(step_fn, args=(next(iterator),))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


epoch = tf.Variable(tf.constant(0, tf.int64), name="epoch")
step_in_epoch = tf.Variable(tf.constant(0, tf.int64), name="step_in_epoch")
resolver = strategy.cluster_resolver
chief = resolver.task_type == "worker" and resolver.task_id == 0
folder = os.environ["SCRATCH"] if chief else tempfile.mkdtemp()

checkpoint = tf.train.Checkpoint(model=model, epoch=epoch, step_in_epoch=step_in_epoch)
manager = tf.train.CheckpointManager(checkpoint, directory=folder, max_to_keep=1)
latest = tf.train.latest_checkpoint(folder)
if latest:
    checkpoint.restore(latest)

while epoch.numpy() < num_epochs:
    iterator = iter(dataset)
    total_loss = 0.0
    while step_in_epoch.numpy() < num_steps_per_epoch:
        total_loss += train_step(iterator)
        step_in_epoch.assign_add(1)
    print(f"Epoch {epoch.numpy()}: accuracy {accuracy.result():.4f}")
    train_loss = total_loss / num_steps_per_epoch
    accuracy.reset_state()
    manager.save()
    epoch.assign_add(1)
    step_in_epoch.assign(0)
print(f"RESULT {train_loss:.6f}", flush=True)
