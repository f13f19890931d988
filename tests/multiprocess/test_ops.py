"""push_pull, broadcast and allgather between real processes.

ops_script.py runs every case in each job once; a test looks at one case.
"""

import pathlib

import numpy as np
import pytest

from support.job import Job, in_jobs, once, run_alone, run_job, run_quietly

SCRIPT = pathlib.Path(__file__).with_name("ops_script.py")
# (workers, dedicated servers): bytes of a partition
JOBS = {(2, 1): 4096000, (3, 0): 1000, (3, 2): 16, (2, 0): 4096000}
EVERY_JOB = in_jobs(JOBS, by_default=[(2, 1), (3, 0)])


@once
def run(job):
    """Each case's value, by rank."""
    return run_quietly(SCRIPT, job, 200, TF_BYTEPS_PARTITION_BYTES=JOBS[job])


def each(job, case):
    """Yields (size, rank, value) of a case on every worker."""
    for rank, worker in enumerate(run(job)):
        yield job[0], rank, worker[case]


def total(size):
    return size * (size + 1) / 2


@EVERY_JOB
def test_averages_and_sums(job):
    for n, _, value in each(job, "averages_and_sums"):
        mean = total(n) / n
        np.testing.assert_allclose(value["values"], [[mean, total(n), 1, n]] * 8)
        assert value["int32"] == [total(n), "int32"]


@EVERY_JOB
def test_optimizer_and_tape(job):
    for n, _, value in each(job, "through_optimizer_and_tape"):
        for way in ("optimizer", "tape"):
            average, summed = value[f"{way} Average"], value[f"{way} Sum"]
            np.testing.assert_allclose(average, [[total(n) / n] * 2] * 8, rtol=1e-6)
            np.testing.assert_allclose(summed, [[total(n)] * 2] * 8, rtol=1e-6)


@EVERY_JOB
def test_an_infinity_on_one_worker_is_skipped_by_all(job):
    for *_, value in each(job, "an_infinity_on_one_worker"):
        # The scale is halved once, and the second gradient is 8 / 4.
        assert value == [[[-1.0], 4.0]] * 2


@EVERY_JOB
def test_jacobians_are_a_workers_own(job):
    for _, rank, (pushes, values) in each(job, "jacobians_are_a_workers_own"):
        assert pushes == 0
        r = 2.0 * (rank + 1)
        assert values == [[[r, 0.0], [0.0, 2 * r]]] * 2


@EVERY_JOB
def test_every_type_is_exact(job):
    for *_, wrong in each(job, "all_types"):
        assert wrong == []


@EVERY_JOB
def test_halves_do_not_overflow(job):
    for *_, value in each(job, "halves_do_not_overflow"):
        assert value == [40000.0, 1.0]


@EVERY_JOB
def test_every_size_is_exact(job):
    for n, _, (wrong, scalar, shape) in each(job, "sizes"):
        assert wrong == []
        assert (scalar, shape) == (total(n), [])


@EVERY_JOB
def test_broadcast_copies_bits(job):
    for _, _, (wrong, bits, other) in each(job, "broadcasts"):
        assert wrong == []
        assert (bits, other) == ("[-0.0, inf]", "[nan, 1.0]")


@EVERY_JOB
def test_allgather(job):
    for n, _, (equal, shape, dense) in each(job, "gathers"):
        assert equal
        assert shape == [0, 3]
        sums = [[sum(range(i + 1, n + 1))] * 2 for i in range(n)]
        np.testing.assert_allclose(dense["Sum"], sums)
        np.testing.assert_allclose(dense["Average"], np.array(sums) / n, rtol=1e-6)


@EVERY_JOB
def test_objects_and_variables(job):
    for n, _, value in each(job, "objects_and_variables"):
        assert value == [n - 1, 1000, [[0.0, 1.0], 0, [0.0]]]


@EVERY_JOB
@pytest.mark.parametrize(
    "what, values",
    [
        ("shape", ("[4]", "[5]")),
        ("dtype", ("float32", "float64")),
        ("operation", ("Average", "Sum")),
        ("root", ("Broadcast from rank 0", "Broadcast from rank 1")),
        ("kind", ("Average", "Broadcast")),
        ("columns", ("[any, 2]", "[any, 3]")),
    ],
)
def test_a_disagreement_names_both_sides(job, what, values):
    texts = set()
    for n, _, value in each(job, "disagreements"):
        text, good = value[what]
        assert text.startswith("InvalidArgumentError"), text
        assert '"d"' in text, text
        for side in (*values, "worker"):
            assert side in text, text
        assert f"{n - 1}" in text
        assert good == [total(n)] * 4
        texts.add(text.partition("tensor")[2].partition("[Op:")[0])
    assert len(texts) == 1  # all are told the same


@EVERY_JOB
def test_gradients(job):
    for n, rank, value in each(job, "gradients"):
        eager_and_graph = {name: v for name, v in value.items() if name != "min"}
        expected = {
            "sum": total(n),
            "average": total(n) / n,
            "broadcast": total(n) if rank == 1 else 0.0,
            "allgather": total(n),
        }
        for name, values in eager_and_graph.items():
            np.testing.assert_allclose(values, [[expected[name]] * 2] * 2, rtol=1e-6)
        assert "push_pull with op=Min has no gradient" in value["min"]


@EVERY_JOB
def test_graphs_keep_every_call(job):
    for n, rank, value in each(job, "graphs_keep_every_call"):
        t, x = total(n), rank + 1.0
        expected = {
            "constants": ([[n, 2.0 * n], [3.0 * n] * 2], 2),
            "equal_calls": ([2 * t], 2),
            "equal_unnamed": ([[t], [t]], 2),
            "unused": ([x], 2),
            "only_side_effect": (None, 1),
            "loop": ([t / n], 4),
            "loop_unused": ([3], 3),
            "branches": ([t], 1),
            "nested": ([3 * t + 2], 2),
            "for_loop": ([t / n], 3),
        }
        for name, (result, pushes) in expected.items():
            got, counted = value[name]
            assert counted == pushes, name
            if result is not None:
                np.testing.assert_allclose(got, result, rtol=1e-6, err_msg=name)


@EVERY_JOB
def test_names_do_not_depend_on_the_number_of_traces(job):
    for n, _, value in each(job, "retracing_on_one_worker"):
        assert value == [[total(n), n * total(n)]] * 3


@EVERY_JOB
def test_twenty_tensors_travel_at_the_same_time(job):
    for *_, value in each(job, "twenty_at_once"):
        assert value


@EVERY_JOB
def test_unnamed_eager_calls_do_not_grow(job):
    partitions = -(-4000 // JOBS[job])
    for _, _, (tensors, pushes, grown) in each(job, "unnamed_eager_calls_do_not_grow"):
        assert tensors == 0
        assert pushes == 1000 * partitions
        assert grown < 8 * 2**20  # a leak of the tensors alone would be 4 GB


@EVERY_JOB
def test_xla_and_saving_say_what_to_do(job):
    for *_, value in each(job, "xla"):
        assert "set jit_compile=False" in value
    for *_, value in each(job, "cannot_be_saved"):
        assert "cannot be saved" in value


def test_priorities_reach_the_operation():
    for *_, value in each((2, 1), "priorities_reach_the_operation"):
        assert value == [-7]


@EVERY_JOB
def test_after_shutdown(job):
    for *_, value in each(job, "after_shutdown"):
        initialized, push, rank = value
        assert not initialized
        assert push.startswith("NotInitializedError: push_pull needs tf_byteps")
        assert rank.startswith("NotInitializedError: rank needs tf_byteps")


TWO_JOBS = """
import sys
import tensorflow as tf
import tf_byteps as bps
from support.worker import report

factor = float(sys.argv[1])
bps.init()
right = 0
for step in range(200):
    x = tf.fill([1000 + step], factor * (bps.rank() + 1))
    right += bool(tf.reduce_all(bps.push_pull(x, "same", bps.Sum) == 3 * factor))
report("right", right)
"""


def test_two_jobs_on_one_host_do_not_meet():
    jobs = [Job(TWO_JOBS, 2, 1, arguments=[str(f)]) for f in (1, 1000)]
    with jobs[0], jobs[1]:
        for job in jobs:
            for name, done in job.wait(60).items():
                assert done.status == 0, done.stderr
                assert name == "server 0" or done.values["right"] == 200


OLD_SCRIPT = """
import os
import numpy as np
import tf_byteps as bps
import tensorflow as tf
from support.worker import report

bps.init()
alone = bps.size() == 1
# Weights differ without a broadcast; worker 0 starts as the process alone does.
tf.keras.utils.set_random_seed(bps.rank())
x = np.random.RandomState(0).rand(256, 3).astype("float32")
y = x @ np.array([[1.0], [2.0], [3.0]], "float32")
# Joint batches of 32 a worker hold the same samples as a batch of 64.
x_train, y_train = x[bps.rank() :: bps.size()], y[bps.rank() :: bps.size()]
model = tf.keras.models.Sequential([tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.SGD()
if not alone:
    optimizer = bps.DistributedOptimizer(tf.keras.optimizers.SGD())
model.compile(loss="mean_squared_error", optimizer=optimizer)
model.fit(
    x_train, y_train, epochs=10, batch_size=64 // bps.size(), shuffle=False, verbose=0
)
report("weights", [w.tolist() for w in model.get_weights()])
if bps.rank() == 0:
    path = os.environ["SCRATCH"] + "/my_model.weights.h5"
    model.save_weights(path)
    model.load_weights(path)
"""


@pytest.mark.parametrize(
    "servers", [0, pytest.param(1, marks=pytest.mark.long)], ids=str
)
def test_a_script_of_the_old_style(servers, tmp_path):

    path = tmp_path / "script.py"
    path.write_text(OLD_SCRIPT)
    alone = run_alone(path).values["weights"]
    done = run_job(path, 2, servers)
    two = [done[f"worker {rank}"].values["weights"] for rank in (0, 1)]
    assert two[0] == two[1]
    for ours, theirs in zip(two[0], alone, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
