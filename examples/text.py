"""Text: a small transformer that learns to continue Python's own manual.

    python examples/text.py                        one process
    bps run -n 2 examples/text.py                  two workers, which also sum
    bps run -n 2 -s 1 examples/text.py             two workers and a summation server

The text is the one that `help("topics")` shows, half a megabyte that comes with every
Python; its last tenth is held out. After two epochs, one to two minutes on two cores,
the model guesses the next character there right in 52 of 100 cases; always guessing a
blank is right in 25.
"""

import argparse
from pydoc_data.topics import topics

import keras
import numpy as np

from tf_byteps import BytePSStrategy

LENGTH = 64
WIDTH = 64


class Block(keras.layers.Layer):
    """Causal self-attention and a feed-forward network, each with a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = keras.layers.MultiHeadAttention(4, width // 4)
        self.norms = [keras.layers.LayerNormalization() for _ in range(2)]
        self.expand = keras.layers.Dense(4 * width, activation="gelu")
        self.contract = keras.layers.Dense(width)

    def call(self, x):
        normed = self.norms[0](x)
        x = x + self.attention(normed, normed, use_causal_mask=True)
        return x + self.contract(self.expand(self.norms[1](x)))


class Positions(keras.layers.Layer):
    """Adds a learned vector for each position."""

    def build(self, shape):
        self.table = self.add_weight(shape=shape[1:], initializer="normal")

    def call(self, x):
        return x + self.table


def load() -> tuple[np.ndarray, np.ndarray, int]:
    """Returns windows of characters for training and held out, and their number."""
    text = "\n".join(topics[name] for name in sorted(topics))
    alphabet = sorted(set(text))
    numbers = {character: i for i, character in enumerate(alphabet)}
    codes = np.array([numbers[c] for c in text], np.int32)
    windows = codes[: len(codes) // (LENGTH + 1) * (LENGTH + 1)]
    windows = windows.reshape(-1, LENGTH + 1)
    cut = len(windows) * 9 // 10
    return windows[:cut], windows[cut:], len(alphabet)


def build(characters: int) -> keras.Model:
    """Returns an untrained model: codes in, the next one's probabilities out."""
    return keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int32"),
            keras.layers.Embedding(characters, WIDTH),
            Positions(),
            Block(WIDTH),
            Block(WIDTH),
            keras.layers.LayerNormalization(),
            keras.layers.Dense(characters),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="of an epoch; default: all")
    parser.add_argument("--batch-size", type=int, default=32, help="of all workers")
    args = parser.parse_args()

    keras.utils.set_random_seed(1)
    train, held_out, characters = load()
    strategy = BytePSStrategy()
    with strategy.scope():
        model = build(characters)
        model.compile(
            optimizer=keras.optimizers.Adam(0.003),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    chief = strategy.extended.should_checkpoint
    if args.steps:
        train = train[: args.steps * args.batch_size]
    model.fit(
        train[:, :-1],
        train[:, 1:],
        args.batch_size,
        args.epochs,
        verbose=2 if chief else 0,
    )
    loss, accuracy = model.evaluate(
        held_out[:, :-1], held_out[:, 1:], args.batch_size, verbose=0
    )
    if chief:
        counts = np.bincount(held_out[:, 1:].ravel())
        print(
            f"{strategy.num_replicas_in_sync} worker(s): accuracy {accuracy:.4f} on "
            f"{counts.sum()} held-out characters, {loss / np.log(2):.2f} bits each "
            f"(the most frequent alone: {counts.max() / counts.sum():.4f})"
        )


if __name__ == "__main__":
    main()
