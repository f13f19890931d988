"""Scripts without a strategy: optimizer, tape, compression, callbacks.

optimizer_script.py runs every case once in each job; a test looks at one case.
"""

import pathlib

import numpy as np
import pytest

from support.job import in_jobs, once, run_job

SCRIPT = pathlib.Path(__file__).with_name("optimizer_script.py")
JOBS = [(2, 1), (3, 0)]
jobs = in_jobs(JOBS)
pytestmark = pytest.mark.timeout(400)


@once
def run(job):
    # A tensor is one push.
    whole = {"TF_BYTEPS_PARTITION_BYTES": "4096000"}
    done = run_job(SCRIPT, *job, seconds=280, environment=whole)
    return [done[f"worker {rank}"].values for rank in range(job[0])]


def values(case, job):
    return [worker[case] for worker in run(job)]


@jobs
def test_every_optimizer_of_keras_equals_one_with_the_mean_gradient(job):
    for worker in values("every_optimizer", job):
        assert {"SGD", "Adam", "AdamW", "Lion", "Muon", "Custom"} <= worker.keys()
        assert max(worker.values()) < 1e-5, worker


@jobs
def test_options_of_optimizers(job):
    for worker in values("with_options", job):
        assert max(worker.values()) < 1e-5, worker


@jobs
def test_several_passes_make_one_step(job):
    mean_rank = sum(range(job[0])) / job[0]
    for worker in values("several_passes", job):
        for average, seen in worker.items():
            divisor = 3 if average == "True" else 1
            first = (1 + 2 + 3 + 3 * mean_rank) / divisor
            second = (4 + 5 + 6 + 3 * mean_rank) / divisor
            assert [pushed for pushed, _ in seen] == [False, False, True] * 2
            expected = [0, 0, -first, -first, -first, -first - second]
            np.testing.assert_allclose([v for _, v in seen], expected, rtol=1e-6)


@jobs
def test_compression(job):
    for worker in values("compressed", job):
        # The error of one rounding each way, and of what the format can hold.
        for name, error, size in (
            ("none", 1e-6, 4000),
            ("fp16", 2**-10, 2000),
            ("bf16", 2**-7, 2000),
        ):
            assert worker[name][0] < error
            assert worker[name][1:] == [size, "float32"]
        assert worker["own"][1:] == [40, "float32"]
        assert worker["slices"] == ["float32", [job[0], 1000]]
        assert worker["optimizer"] < 1e-3


@jobs
def test_groups_travel_as_one_tensor(job):
    mean_rank = sum(range(job[0])) / job[0]
    for worker in values("groups", job):
        assert {name: count for name, (count, _) in worker.items()} == {
            "none": 4,
            "one": 1,
            "two": 2,
            "lists": 3,
        }
        for _, applied in worker.values():
            np.testing.assert_allclose(applied, [-(i + mean_rank) for i in range(4)])


@jobs
def test_sparse_gradients_travel_as_rows(job):
    n = job[0]
    expected = [0.0] * 6
    for r in range(n - 1):
        expected[r] -= 2 * (r + 1)
        expected[5] -= r + 1
    for rows, dense in values("sparse", job):
        assert rows == [expected, False]
        assert dense == [expected, True]


@jobs
def test_tapes(job):
    n = job[0]
    total = sum(range(1, n + 1))
    table = [[0.0] for _ in range(4)]
    for r in range(n):
        table[r][0] += 2 * (r + 1)
        table[3][0] += r + 1
    for rank, worker in enumerate(values("tapes", job)):
        assert worker["persistent"] == [[12.0 * total], [4.0 * total]]
        assert worker["none"] == [False, True]
        assert worker["structure"] == {"x": [12.0 * total], "y": [[4.0 * total]]}
        assert worker["sparse"] == table
        # slope = total * 3 x^2; its gradient is what all say of their own x.
        slope = total * 12.0
        # The outer tape is plain, but the gradient of a sum is the sum of what all
        # workers say, and then goes on into this worker's own cube.
        assert worker["nested"] == [2 * slope * n * 12.0 * (rank + 1)]


@jobs
def test_a_loaded_model_trains_on_as_if_it_had_not_been_saved(job):
    workers = values("saved_and_loaded", job)
    for worker in workers:
        assert worker["plain"] and worker["variables"] and worker["kind"]
        on, again, again_16 = worker["weights"]
        assert on == again == workers[0]["weights"][0]
        for a, b in zip(on, again_16, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-3)


@jobs
def test_callbacks(job):
    n = job[0]
    workers = values("callbacks", job)
    for worker in workers:
        assert worker["first"] == workers[0]["first"]
        assert worker["last"] == workers[0]["last"]
        np.testing.assert_allclose(worker["loss"], workers[0]["loss"], rtol=1e-6)
        # From 0.1 to 0.1 n in eight batches, then 0.1 n times 0.01 and 0.001.
        warm = [0.1 * (1 + (n - 1) * (i + 1) / 8) for i in range(8)]
        rates = [*warm, *[0.001 * n] * 4, *[0.0001 * n] * 4]
        np.testing.assert_allclose(worker["rates"], rates, rtol=1e-5)
        np.testing.assert_allclose(worker["learning_rate"], rates[3::4], rtol=1e-5)


@jobs
def test_unequal_numbers_of_steps_end(job):
    workers = values("unequal_numbers_of_steps", job)
    for worker in workers:
        assert worker == workers[0]
        assert worker[0] == job[0] - 1


@jobs
def test_objects_of_all(job):
    for worker in values("objects", job):
        assert worker == [{"rank": r, "text": "x" * r} for r in range(job[0])]


@pytest.mark.parametrize(
    "mistake, words",
    [
        ("passes", "backward_passes_per_step must be an integer from 1. Received: 0"),
        ("built", "needs an optimizer that was not used yet"),
        ("both", "has no gradient_accumulation_steps of its own"),
        ("groups", "groups must be None, a number of groups"),
        ("compression", "compression must be None, tf_byteps.Compression.none"),
        ("twice", "the optimizer is one already"),
        ("rate", "LearningRateWarmupCallback: initial_lr must be a number"),
    ],
)
def test_a_mistake_is_a_sentence(mistake, words):
    for worker in values("mistakes", JOBS[0]):
        assert words in worker[mistake]
