"""Keras's whole contract: many workers train, evaluate and predict as one process.

keras_script.py runs every case in each job once; a test looks at one case.
docs/compatibility.md is the table of what is shown here.
"""

import pathlib

import numpy as np
import pytest

from support.compare import close
from support.job import case_of, in_jobs, once, run_alone, run_job, run_python

SCRIPT = pathlib.Path(__file__).with_name("keras_script.py")
EQUAL_TO_ONE = (
    "uneven_batches",
    "uneven_batches_in_other_ways",
    "uneven_batch_norm",
    "uneven_synchronized_batch_norm",
    "losses_that_are_sums",
    "masked_losses",
    "weighted_samples",
    "clipping",
    "data_of_every_kind",
    "the_end_of_data_of_unknown_length",
    "tails",
    "one_batch_alone",
    "losses_of_layers_and_models",
    "metrics_of_every_kind",
    "recurrent",
    "sparse_gradients",
    "callbacks_that_write",
    "callbacks_that_decide",
    "swapped_averages",
    "loaded_in_scope",
    "structures_of_elements",
    "warnings_given",
)
# With three workers even the batches of 16 are uneven.
THREE = (
    "uneven_batches",
    "uneven_batch_norm",
    "masked_losses",
    "weighted_samples",
    "clipping",
    "metrics_of_every_kind",
    "sparse_gradients",
    "dropout_masks",
)
JOBS = {(2, 1): (), (3, 0): THREE}
pytestmark = pytest.mark.timeout(900)


@once
def alone():
    """Each case's value in one process."""
    return run_alone(SCRIPT, seconds=280).values


@once
def run(job):
    """Each case's value, by rank, and what the workers printed."""
    done = run_job(
        SCRIPT, *job, seconds=500, environment={"CASES": ",".join(JOBS[job])}
    )
    return [done[f"worker {rank}"] for rank in range(job[0])]


def values(case, job=(2, 1)):
    return [worker.values[case] for worker in run(job)]


@pytest.mark.parametrize(
    "job, case",
    [
        case_of(job, case)
        for job, cases in JOBS.items()
        for case in cases or EQUAL_TO_ONE
        if case in EQUAL_TO_ONE
    ],
)
def test_workers_equal_one_process(job, case):
    for value in values(case, job):
        close(value, alone()[case])


def test_known_values():
    """From independent computations, each in one process."""
    (two, _) = values("uneven_batches")
    np.testing.assert_allclose(
        two["one epoch"], [1.554097, 1.343774, 3.143221, 1.374087], rtol=1e-5
    )
    assert values("clipping")[0]["known"] == pytest.approx([0.5 * 4])


def test_halves_are_near_one_process():
    """Sums in another order, of 8 or 11 bits: to 1 %."""
    for name in ("mixed_float16", "mixed_bfloat16"):
        for value in values("half_precision"):
            one = alone()["half_precision"][name]
            for a, b in zip(value[name]["weights"], one["weights"], strict=True):
                assert a == pytest.approx(b, rel=0.01)


@in_jobs(JOBS)
def test_replicas_draw_different_numbers_and_the_same_again(job):
    workers = values("dropout_masks", job)
    for first, again in workers:
        assert first["drawn"] == again["drawn"]
        # What is saved is the same on all.
        assert first["state"] == workers[0][0]["state"]
    for position in range(len(workers[0][0]["drawn"])):
        seen = {str(worker[0]["drawn"][position]) for worker in workers}
        assert len(seen) == len(workers)
    # A process alone draws what it draws without a strategy.
    assert workers[0][0]["drawn"][0] == alone()["dropout_masks"][0]["drawn"][0]


def test_the_same_seed_gives_the_same_bits():
    (first, again), other = values("same_bits_again")
    assert first == again
    assert [first, again] == other


def test_messages_of_a_step():
    """Gradients and logs; what is not known before, and statistics, cost one each."""
    for worker in values("messages_of_a_step"):
        assert worker == {
            "fit": 2,
            "fit a dataset": 5,  # who has data, how much of it, the loss
            "BatchNormalization": 3,
            "two steps a call": 1.5,
            "evaluate": 1,
        }


def test_several_steps_a_call_give_the_same_bits():
    (one_by_one, together), other = values("several_steps_a_call")
    assert one_by_one == together
    assert other == [one_by_one, together]


def test_only_worker_0_prints_progress():
    zero, one = run((2, 1))
    bar = [
        worker.stdout.partition("bar begins")[2].partition("bar ends")[0]
        for worker in (zero, one)
    ]
    assert "loss:" in bar[0] and bar[1].strip() == ""


MISTAKES = {
    "metric_outside": "made outside of the strategy's scope and would count this",
    "off": "AutoShardPolicy.OFF gives every worker the whole dataset",
    "epochs": "epochs is 1 on worker 0 and 2 on worker 1",
    # Either may be the first.
    "models": ("[4, 1] on worker 0", "[4, 2] on worker 1"),
    "samples": "x is [(32, 4)] on worker 0 and [(33, 4)] on worker 1",
    "datasets": "number of batches is 2 on worker 0 and 3 on worker 1",
    "evaluated": "number of batches is 2 on worker 0 and 3 on worker 1",
    "validation": "validation_data is [(64, 4), (64, 1)] on worker 0 and [] on",
    "batch_size": "batch_size is 8 on worker 0 and 16 on worker 1",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_a_sentence_on_all_workers(mistake):
    for worker in values("mistakes"):
        words = MISTAKES[mistake]
        for part in [words] if isinstance(words, str) else words:
            assert part in worker[mistake]


OUTSIDE = """
import keras, numpy as np, tf_byteps
from support.worker import report, sentence
strategy = tf_byteps.BytePSStrategy()

def fit():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)

report("forgotten", sentence(fit))
with strategy.scope():
    fit()
report("on purpose", sentence(fit))  # as in TensorFlow's own tutorial
"""


def test_a_forgotten_scope_is_an_error():
    for worker in run_job(OUTSIDE).values():
        assert (
            "made outside of the strategy's scope and would train on each"
            in (worker.values["forgotten"])
        )
        assert worker.values["on purpose"] == "nothing was raised"


DETERMINISTIC = """
import keras, numpy as np, tensorflow as tf, tf_byteps
from support.worker import report
keras.utils.set_random_seed(5)
tf.config.experimental.enable_op_determinism()
with tf_byteps.BytePSStrategy().scope():
    model = keras.Sequential([
        keras.Input((4,)),
        keras.layers.Dense(64, "relu"),
        keras.layers.Dropout(0.2),
        keras.layers.BatchNormalization(),
        keras.layers.Dense(1),
    ])
    model.compile("adam", "mse")
x = np.random.rand(80, 4)
model.fit(x, x.sum(1), batch_size=16, epochs=3, verbose=0)
report("bits", b"".join(w.tobytes() for w in model.get_weights()).hex())
"""


def test_deterministic_operations_give_the_same_bits_run_after_run():
    """Whatever the order in which the workers' gradients arrive."""
    bits = {
        worker.values["bits"]
        for _ in range(2)
        for name, worker in run_job(DETERMINISTIC, workers=3, servers=1).items()
        if name.startswith("worker")
    }
    assert len(bits) == 1


SAVE = """
import os, sys
sys.path.append(os.environ["SCRIPTS"])
from keras_script import saved
from support.worker import report
report("predicted", saved())
"""
LOAD = """
import sys
sys.modules["tf_byteps"] = None  # cannot be imported
import keras, numpy as np, tensorflow as tf
folder = sys.argv[1]
x = np.random.RandomState(0).rand(64, 4).astype("float32")[:8]
model = keras.models.load_model(f"{folder}/model.keras")
outputs = [model(x, training=False)]
weights = keras.models.clone_model(model)
weights.load_weights(f"{folder}/model.weights.h5")
outputs.append(weights(x, training=False))
checkpoint = keras.models.clone_model(model)
tf.train.Checkpoint(model=checkpoint).restore(f"{folder}/checkpoint").expect_partial()
outputs.append(checkpoint(x, training=False))
for name in ("exported", "saved_model"):
    loaded = tf.saved_model.load(f"{folder}/{name}")
    for function in loaded.signatures.values():
        outputs += function(tf.constant(x)).values()
        names = {node.op for node in function.graph.as_graph_def().node}
        assert not any("TfByteps" in name for name in names), names
assert len(outputs) == 6, len(outputs)  # two signatures are exported
model.fit(x, x[:, :1], verbose=0)
print([np.asarray(output).tolist() for output in outputs])
"""


def test_what_was_saved_loads_without_tf_byteps(tmp_path):
    environment = {"SCRATCH": str(tmp_path), "SCRIPTS": str(SCRIPT.parent)}
    done = run_job(SAVE, environment=environment)
    loaded = run_python("-c", LOAD, tmp_path / "saved", seconds=60)
    assert loaded.returncode == 0, loaded.stderr
    outputs = eval(loaded.stdout.splitlines()[-1])
    for output in outputs:
        np.testing.assert_allclose(
            output, done["worker 1"].values["predicted"], rtol=1e-6
        )


BACKUP = """
import os, signal, sys
sys.path.append(os.environ["SCRIPTS"])
import keras
from keras_script import FOLDER, data, mlp, rank
from support.worker import report

class Die(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2 and "DIE" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)

folder = FOLDER / ("backup" if rank == 0 else "nothing")
callbacks = [keras.callbacks.BackupAndRestore(folder), Die()]
model = mlp(lambda: keras.optimizers.Adam(0.01), batch_norm=False)
x, y = data()
history = model.fit(x, y, batch_size=16, epochs=4, shuffle=False, verbose=0,
                    callbacks=callbacks)
report("history", history.history)
report("weights", [w.tolist() for w in model.get_weights()])
report("left", [p.name for p in FOLDER.glob("*")])
"""


def test_training_goes_on_from_its_backup(tmp_path):
    """All are killed in the third epoch; worker 1 does not even see the files."""

    def train(name, **environment):
        (tmp_path / name).mkdir(exist_ok=True)
        environment |= {"SCRATCH": str(tmp_path / name), "SCRIPTS": str(SCRIPT.parent)}
        return run_job(BACKUP, environment=environment, good="DIE" not in environment)

    whole = train("whole")["worker 0"].values
    died = train("killed", DIE="1")
    assert {done.status for done in died.values()} == {-9}
    again = train("killed")
    for done in again.values():
        close(done.values["history"]["loss"], whole["history"]["loss"][2:])
        close(done.values["weights"], whole["weights"])
    assert again["worker 0"].values["left"] == []


START = """
import time
import keras, numpy as np
{before}
with {scope}:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=8, verbose=0)
print(time.process_time())
"""
OURS = "import tf_byteps; strategy = tf_byteps.BytePSStrategy()"


def test_a_strategy_adds_little_to_the_start():
    """Under 2 s of CPU from import to the end of the first step, the better of two."""

    def seconds(before, scope):
        code = START.format(before=before, scope=scope)
        runs = [run_python("-c", code, seconds=60) for _ in range(2)]
        return min(float(done.stdout.splitlines()[-1]) for done in runs)

    plain = seconds("import contextlib", "contextlib.nullcontext()")
    assert seconds(OURS, "strategy.scope()") - plain < 2


def test_keras_own_semantics_can_be_had():
    """The numbers of TensorFlow's own strategies, for who wants them."""
    code = """
import sys; sys.path.append(sys.argv[1])
from keras_script import *
from support.worker import report
report("uneven", trained(mlp(), *data(65), epochs=1)["weights"])
report("clipped", clipping()["known"])
report("masks", dropout_masks()[0]["drawn"][0])
"""
    code = code.replace("sys.argv[1]", repr(str(SCRIPT.parent)))
    done = run_job(code, environment={"TF_BYTEPS_SEMANTICS": "replica"})
    for worker in done.values():
        np.testing.assert_allclose(
            worker.values["uneven"], [1.14693, 1.173465, 2.892974, 1.281879], rtol=1e-5
        )
        assert worker.values["clipped"] == pytest.approx([1.0 * 4])
        assert worker.values["masks"] == done["worker 0"].values["masks"]
