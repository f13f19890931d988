"""TensorFlow's and Keras's own tests of strategies, with ours.

The installed packages have them; the workers that run them say what came of each.
"""

import importlib.util
import pathlib

import numpy as np
import pytest

from support.job import in_jobs, once, run_alone, run_job

HERE = pathlib.Path(__file__).parent
# (workers, dedicated servers)
JOBS = [(1, 0), (2, 1), (3, 0)]
LIBRARY = "tensorflow/python/distribute/strategy_test_lib.py"
KERAS = [
    f"keras/src/{path}_test.py"
    for path in (
        "backend/tensorflow/distribute",
        "backend/tensorflow/optimizer_distribute",
        "callbacks/swap_ema_weights",
    )
]
in_each_job = in_jobs(JOBS, by_default=[(1, 0), (2, 1)])
pytestmark = pytest.mark.timeout(300)


def without(*paths):
    """A mark that skips a test if the installed packages lack one of the files."""
    missing = []
    for path in paths:
        package, _, inside = path.partition("/")
        spec = importlib.util.find_spec(package)
        folders = spec.submodule_search_locations if spec else ()
        if not any(pathlib.Path(folder, inside).exists() for folder in folders):
            missing.append(path)
    return pytest.mark.skipif(
        bool(missing), reason=f"the installed package has no {', '.join(missing)}"
    )


needs_tensorflows = without(LIBRARY)
needs_kerass = without(*KERAS)


@once
def run(job):
    """What each worker of a job reports, by rank."""
    script = HERE / "tf_suite_script.py"
    if job == (1, 0):
        return [run_alone(script, seconds=200).values]
    done = run_job(script, *job, seconds=200)
    return [done[f"worker {rank}"].values for rank in range(job[0])]


@once
def run_keras():
    done = run_job(HERE / "keras_suite_script.py", 2, 1, seconds=200)
    return [done[f"worker {rank}"].values for rank in range(2)]


def bad(outcomes):
    return {name: text for name, text in outcomes.items() if text != "ok"}


@needs_tensorflows
@in_each_job
def test_tensorflows_own_tests(job):
    for worker in run(job):
        assert bad(worker["outcomes"]) == {}


@needs_tensorflows
@in_each_job
def test_each_of_tensorflows_tests_runs_or_is_left_out_for_a_reason(job):
    for worker in run(job):
        assert sorted([*worker["ran"], *worker["left out"]]) == sorted(worker["all"])
        assert all(worker["left out"].values())


@needs_tensorflows
@in_each_job
def test_every_public_method(job):
    for worker in run(job):
        assert bad(worker["our outcomes"]) == {}


@needs_kerass
def test_kerass_own_tests():
    for worker in run_keras():
        left_out = {
            name
            for name, text in bad(worker["outcomes"]).items()
            if text == "left out" or text == "skipped: tf_keras not installed"
        }
        assert bad(worker["outcomes"]).keys() == left_out
        assert worker["left out"].keys() <= left_out  # they exist


@needs_kerass
def test_a_replica_has_its_part_of_a_batch():
    """Of 100 rows in batches of 16: two times 8, at the end two times 2."""
    for rank, worker in enumerate(run_keras()):
        full = [[16 * i + 8 * rank, [8, 3], [8, 2], [8]] for i in range(6)]
        assert worker["batches"] == [*full, [96 + 2 * rank, [2, 3], [2, 2], [2]]]


@needs_kerass
def test_a_replica_computes_its_own_output():
    for rank, worker in enumerate(run_keras()):
        assert worker["output"] == [[[4.0 * (rank + 1)] * 2] * 8] * 2


@needs_kerass
def test_moving_averages_follow_the_sum_of_gradients():
    """10 goes down by 1 + 2; a third step puts the average in its place."""
    expected = [[7, 7], [4, 0.9 * 7 + 0.1 * 4], [6.13, 0.9 * 6.7 + 0.1 * 1]]
    for worker in run_keras():
        np.testing.assert_allclose(worker["averages"], expected, rtol=1e-6)
