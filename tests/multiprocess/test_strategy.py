"""`BytePSStrategy`: many workers train what one process trains.

strategy_script.py runs every case in each job once; a test looks at one case. The
tolerance of 1e-6 is that of float32 sums in another order.
"""

import pathlib

import numpy as np
import pytest

from support.compare import close
from support.job import case_of, in_jobs, once, run_alone, run_job

SCRIPT = pathlib.Path(__file__).with_name("strategy_script.py")
# What one process computes too.
EQUAL_TO_ONE = (
    "numpy_data",
    "unbuilt_model",
    "tf_data",
    "distributed_dataset",
    "dataset_from_function",
    "unknown_cardinality",
    "infinite_dataset",
    "dict_inputs",
    "momentum",
    "adam",
    "digits_momentum",
    "digits_adam",
    "gradient_accumulation",
    "moving_average_of_weights",
    "steps_per_execution",
    "run_eagerly",
    "loss_scale",
    "an_infinity_on_one_worker",
    "synchronized_batch_norm",
    "regularizers",
    "embedding",
    "string_inputs",
    "train_on_batch",
    "custom_loop",
    "loop_in_a_function",
    "initial_values_are_worker_0s",
    "metrics_are_the_clusters",
    "custom_train_step",
    "a_shuffled_epoch_has_every_sample_once",
)
# Batches of 12 divide by three workers, those of 16 do not.
MANY = (
    "a_shuffled_epoch_has_every_sample_once",
    "embedding",
    "string_inputs",
    "custom_train_step",
    "collectives",
    "gradient_through_all_reduce",
    "initial_values_are_worker_0s",
    "uneven_sizes",
    "workers_with_unequal_datasets",
    "batch_norm",
    "chief_saves_alone",
    "properties",
)
SOME = ("embedding", "collectives", "workers_with_unequal_datasets")
# (workers, dedicated servers): cases; none: all.
JOBS = {(2, 1): (), (3, 2): MANY, (2, 0): SOME, (3, 0): SOME}


def jobs_with(case):
    """Parametrizes a test by the jobs that run a case."""
    return in_jobs(job for job, cases in JOBS.items() if case in cases or not cases)


@once
def alone():
    """Each case's value in one process."""
    return run_alone(SCRIPT, seconds=240).values


@once
def run(job):
    """Each case's value, by rank."""
    done = run_job(
        SCRIPT,
        *job,
        seconds=280,
        environment={
            "CASES": ",".join(JOBS[job]),
            # Small tensors too are of many partitions.
            "TF_BYTEPS_PARTITION_BYTES": "100",
        },
    )
    return [done[f"worker {rank}"].values for rank in range(job[0])]


TWO = (2, 1)
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("case", EQUAL_TO_ONE)
def test_two_workers_equal_one_process(case):
    two = run(TWO)
    close(two[0][case], alone()[case])
    assert two[1][case] == two[0][case]


@pytest.mark.parametrize(
    "job, case",
    [case_of(j, c) for j, cases in JOBS.items() for c in cases if c in EQUAL_TO_ONE],
)
def test_any_job_equals_one_process(job, case):
    for worker in run(job):
        close(worker[case], alone()[case])
        assert worker[case] == run(job)[0][case]


def test_known_values():
    """The losses of the tutorial-shaped model, from an independent computation."""
    values = run(TWO)[1]["numpy_data"]
    np.testing.assert_allclose(
        values["history"]["loss"], [10.484957, 0.910635, 0.413936], rtol=1e-5
    )
    np.testing.assert_allclose(
        values["history"]["mae"], [2.974179, 0.740578, 0.547783], rtol=1e-5
    )
    np.testing.assert_allclose(values["evaluate"], [0.398675, 0.533726], rtol=1e-5)
    assert np.shape(values["predict"]) == (64, 1)
    close(values["predict"], values["direct"])


@jobs_with("uneven_sizes")
@pytest.mark.parametrize("n", ["65", "66", "70", "17", "15", "1"])
def test_no_number_of_samples_hangs(job, n):
    for worker in run(job):
        values = worker["uneven_sizes"][n]
        np.testing.assert_allclose(*values["loss"], rtol=1e-5)
        assert values["shape"] == [int(n), 1]
        assert values["difference"] < 1e-5


@jobs_with("workers_with_unequal_datasets")
def test_workers_with_unequal_datasets_stay_in_step(job):
    for worker in run(job):
        weights = worker["workers_with_unequal_datasets"]
        assert weights == run(job)[0]["workers_with_unequal_datasets"]
        assert weights["True"] == weights["False"]  # cardinality known or not


@jobs_with("batch_norm")
def test_moving_statistics_are_equal_on_all_workers(job):
    for worker in run(job):
        assert worker["batch_norm"] == run(job)[0]["batch_norm"]
    # Of part batches, so near those of one process, and not equal.
    np.testing.assert_allclose(
        run(job)[0]["batch_norm"]["moving_mean"],
        alone()["batch_norm"]["moving_mean"],
        atol=0.02,
    )


@jobs_with("chief_saves_alone")
def test_a_chief_saves_without_the_others(job):
    for worker in run(job):
        assert worker["chief_saves_alone"] == run(job)[0]["chief_saves_alone"]


@jobs_with("collectives")
def test_collectives(job):
    workers = run(job)
    n = len(workers)
    total = sum(range(1, n + 1))
    rows = [[float(r)] * 2 for r in range(n) for _ in range(r + 1)]
    for rank, worker in enumerate(workers):
        sums, means, by_axis, row_mean, nested, gathered, columns, *in_replica = worker[
            "collectives"
        ]
        assert sums == [total, 10.0 * n]
        np.testing.assert_allclose(means, [total / n, 10.0], rtol=1e-6)
        assert by_axis == total + 10.0 * n
        np.testing.assert_allclose(row_mean, np.mean(rows, axis=0), rtol=1e-6)
        assert nested == {"x": sums, "y": [sums]}
        assert gathered == rows
        assert columns == [[r for r in range(n) for _ in range(r + 1)]] * 2
        for all_reduced, mean, all_gathered, own, count in in_replica:
            doubled = [2 * v for v in sums]
            assert all_reduced == {"a": sums, "b": [doubled]}
            assert mean == sum(range(n)) // n
            assert all_gathered == list(range(n))
            assert (own, count) == (rank, n)


@jobs_with("gradient_through_all_reduce")
def test_the_gradient_of_a_sum_is_a_sum(job):
    workers = run(job)
    n = len(workers)
    total = sum(range(1, n + 1))
    # d/dx of (rank + 1) * s^2 with s the sum: 2s, summed with the ranks' weights.
    expected = [2.0 * total * sum(range(1, n + 1))]
    for worker in workers:
        assert worker["gradient_through_all_reduce"] == [expected, expected]


@jobs_with("properties")
def test_properties(job):
    workers = run(job)
    n = len(workers)
    for rank, worker in enumerate(workers):
        properties = worker["properties"]
        assert properties["replicas"] == n
        assert properties["chief"] == [rank == 0] * 2
        assert [d[-5:] for d in properties["devices"]] == ["CPU:0"]
        assert properties["task"] == "worker"
        assert properties["values"] == [rank]
        assert properties["size"] == [n, rank, n, rank]


@pytest.mark.parametrize(
    "mistake, words",
    [
        ("jit_compile", "set jit_compile=False"),
        ("optimizer_outside", "made outside of the strategy's scope"),
        ("wrapped_inside", "inside a strategy's scope gradients are combined anyway"),
        ("device", "device must be one of CPU:0. Received: 'GPU:7'"),
        ("options", "options must be a tf_byteps.Options"),
    ],
)
def test_a_mistake_is_a_sentence(mistake, words):
    for worker in run(TWO):
        assert words in worker["mistakes"][mistake]
