"""A recommender: embeddings, whose gradients travel as the rows that were used.

    python examples/recommender.py                 one process
    bps run -n 2 examples/recommender.py           two workers, which also sum
    bps run -n 2 -s 1 examples/recommender.py      two workers and a summation server

Which words would a page of Python's manual "like"? The pages are those that
`help("topics")` shows and come with every Python; words are items, and a page likes
those that it holds. One in ten is held out. After four epochs, some seconds, a
held-out word scores higher than a word from elsewhere in 85 of 100 cases (the area
under the ROC curve, AUC); by chance it would be in 50.
"""

import argparse
import re
from collections import Counter
from pydoc_data.topics import topics

import keras
import numpy as np

from tf_byteps import BytePSStrategy


def load(seed: int = 0) -> tuple:
    """Returns (pages, words, liked) for training and held out, and both counts."""
    rng = np.random.RandomState(seed)
    pages = [set(re.findall(r"[a-z]{3,}", topics[t].lower())) for t in sorted(topics)]
    seen = Counter(word for page in pages for word in page)
    words = sorted(word for word, count in seen.items() if count >= 4)
    numbers = {word: i for i, word in enumerate(words)}
    likes = np.zeros((len(pages), len(words)), bool)
    for i, page in enumerate(pages):
        likes[i, [numbers[word] for word in page if word in numbers]] = True

    page, word = np.nonzero(likes)
    held_out = rng.rand(len(page)) < 0.1

    def with_others(chosen):
        """The chosen likes, and as many pairs that are none."""
        others = np.argwhere(~likes)
        others = others[rng.randint(len(others), size=chosen.sum())]
        pairs = np.concatenate([np.stack([page, word], 1)[chosen], others])
        liked = np.repeat([1.0, 0.0], chosen.sum()).astype("float32")
        order = rng.permutation(len(pairs))
        return pairs[order, 0], pairs[order, 1], liked[order]

    return with_others(~held_out), with_others(held_out), len(pages), len(words)


def build(pages: int, words: int, width: int = 16) -> keras.Model:
    """Returns an untrained model: how much a page likes a word."""
    page = keras.Input((), dtype="int32", name="page")
    word = keras.Input((), dtype="int32", name="word")
    taste = keras.layers.Embedding(pages, width)(page)
    flavour = keras.layers.Embedding(words, width)(word)
    popularity = keras.layers.Embedding(words, 1)(word)
    match = keras.layers.Dot(axes=1)([taste, flavour])
    score = keras.layers.Add()([match, popularity])
    return keras.Model({"page": page, "word": word}, score)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=256, help="of all workers")
    args = parser.parse_args()

    keras.utils.set_random_seed(1)
    train, held_out, pages, words = load()
    strategy = BytePSStrategy()
    with strategy.scope():
        model = build(pages, words)
        model.compile(
            optimizer=keras.optimizers.Adam(0.01),
            loss=keras.losses.BinaryCrossentropy(from_logits=True),
            metrics=[keras.metrics.AUC(from_logits=True, name="auc")],
        )
    chief = strategy.extended.should_checkpoint
    model.fit(
        {"page": train[0], "word": train[1]},
        train[2],
        args.batch_size,
        args.epochs,
        verbose=2 if chief else 0,
    )
    _, auc = model.evaluate(
        {"page": held_out[0], "word": held_out[1]},
        held_out[2],
        args.batch_size,
        verbose=0,
    )
    if chief:
        print(
            f"{strategy.num_replicas_in_sync} worker(s): AUC {auc:.4f} on "
            f"{len(held_out[0])} held-out pairs of {pages} pages and {words} words"
        )


if __name__ == "__main__":
    main()
