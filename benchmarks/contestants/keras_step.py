"""Steps of Keras models: `-m contestants.keras_step tf_byteps|mwms|horovod|alone`.

A task is a model, or as "MODEL*K" K steps in one function.
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from contestants import horovod_job
from contestants.serve import serve

_VOCABULARY, _WIDTH, _LENGTH = 42000, 256, 50
_PACK = 25 * 10**6  # what MultiWorkerMirroredStrategy is fastest with


def vgg():
    """84 MB in 12 tensors, most of them in one dense layer."""
    layers = keras.layers
    model = keras.Sequential([layers.Input((32, 32, 3))])
    for filters in (64, 128, 256):
        model.add(layers.Conv2D(filters, 3, padding="same", activation="relu"))
        model.add(layers.MaxPooling2D())
    model.add(layers.Flatten())
    for units in (4096, 1000):
        model.add(layers.Dense(units, activation="relu"))
    model.add(layers.Dense(10))
    return model, np.random.rand(32, 32, 32, 3).astype(np.float32), 10


def resnet():
    """45 MB in 62 tensors, most of them tiny: ResNet-18 for images of 32 x 32."""
    layers = keras.layers

    def normalized(x, filters, size, strides=1):
        x = layers.Conv2D(filters, size, strides, padding="same", use_bias=False)(x)
        return layers.BatchNormalization()(x)

    def block(x, filters, strides):
        y = layers.ReLU()(normalized(x, filters, 3, strides))
        y = normalized(y, filters, 3)
        if strides > 1:
            x = normalized(x, filters, 1, strides)
        return layers.ReLU()(layers.Add()([x, y]))

    images = layers.Input((32, 32, 3))
    x = layers.ReLU()(normalized(images, 64, 3))
    for filters in (64, 128, 256, 512):
        x = block(x, filters, 1 if filters == 64 else 2)
        x = block(x, filters, 1)
    x = layers.Dense(10)(layers.GlobalAveragePooling2D()(x))
    return keras.Model(images, x), np.random.rand(4, 32, 32, 3).astype(np.float32), 10


def transformer():
    """An Embedding of 43 MB, of which a batch uses 3 MB of rows, and a small block."""
    layers = keras.layers
    tokens = layers.Input((_LENGTH,), dtype="int32")
    x = layers.Embedding(_VOCABULARY, _WIDTH)(tokens)
    attended = layers.MultiHeadAttention(2, 32)(x, x)
    x = layers.LayerNormalization()(layers.Add()([x, attended]))
    dense = layers.Dense(_WIDTH)(layers.Dense(_WIDTH // 2, activation="relu")(x))
    x = layers.LayerNormalization()(layers.Add()([x, dense]))
    x = layers.Dense(10)(layers.GlobalAveragePooling1D()(x))
    batch = np.random.randint(0, _VOCABULARY, (64, _LENGTH), np.int32)
    return keras.Model(tokens, x), batch, 10


MODELS = {"vgg": vgg, "resnet": resnet, "transformer": transformer}


def make_strategy(kind):
    if kind == "tf_byteps":
        import tf_byteps as bps

        return bps.BytePSStrategy()
    if kind == "mwms":
        experimental = tf.distribute.experimental
        return tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=experimental.CommunicationOptions(
                bytes_per_pack=_PACK,
                implementation=experimental.CommunicationImplementation.RING,
            )
        )
    return tf.distribute.get_strategy()


def make_average(kind):
    """What becomes of gradients before the optimizer has them, beside the strategy.

    Horovod's own tape and optimizer do not work with Keras 3; its operations do.
    """
    if kind != "horovod":
        return lambda gradients: gradients
    hvd = horovod_job.init()
    return lambda gradients: [
        hvd.allreduce(g, op=hvd.Average, name=f"gradient{i}")
        for i, g in enumerate(gradients)
    ]


def main():
    strategy = make_strategy(sys.argv[1])
    average = make_average(sys.argv[1])

    def prepare(task):
        name, _, together = task.partition("*")
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model, batch, classes = MODELS[name]()
            optimizer = keras.optimizers.SGD(0.01)
            optimizer.build(model.trainable_variables)
        batch = tf.constant(batch)
        labels = tf.constant(np.random.randint(0, classes, len(batch)))

        def in_replica():
            with tf.GradientTape() as tape:
                losses = keras.losses.sparse_categorical_crossentropy(
                    labels, model(batch, training=True), from_logits=True
                )
                loss = tf.reduce_mean(losses) / strategy.num_replicas_in_sync
            variables = model.trainable_variables
            gradients = average(tape.gradient(loss, variables))
            optimizer.apply(gradients, variables)
            return loss

        steps = range(int(together or 1))
        return tf.function(lambda: [strategy.run(in_replica) for _ in steps])

    serve(prepare)


if __name__ == "__main__":
    main()
