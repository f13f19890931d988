"""A process alone: no server, no network, no thread; and what a mistake is told."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_byteps as bps
from support.job import environment_of, run_python
from tf_byteps import _native, runtime
from tf_byteps.errors import ArgumentError, BuildError, NotInitializedError


@pytest.fixture
def job():
    """A job of this process."""
    bps.init()
    yield
    bps.shutdown()


CALLS = {
    "rank": bps.rank,
    "size": bps.size,
    "local_rank": bps.local_rank,
    "local_size": bps.local_size,
    "num_servers": bps.num_servers,
    "push_pull": lambda: bps.push_pull([1.0]),
    "broadcast": lambda: bps.broadcast([1.0]),
    "allgather": lambda: bps.allgather([1.0]),
    "barrier": bps.barrier,
    "join": bps.join,
    "start_timeline": lambda: bps.start_timeline("/dev/null/x"),
    "stop_timeline": bps.stop_timeline,
    "broadcast_object": lambda: bps.broadcast_object(1),
    "broadcast_variables": lambda: bps.broadcast_variables([]),
}


@pytest.mark.parametrize("name", CALLS)
def test_before_init_the_error_names_the_call(name):
    with pytest.raises(NotInitializedError, match=rf"^{name} needs tf_byteps"):
        CALLS[name]()


def test_everything_is_the_identity(job):
    assert (bps.rank(), bps.size(), bps.local_rank(), bps.local_size()) == (0, 1, 0, 1)
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    for result in (bps.push_pull(x, op=bps.Sum), bps.broadcast(x), bps.allgather(x)):
        np.testing.assert_array_equal(result, x)
    slices = tf.IndexedSlices(tf.ones([2, 3]), tf.constant([1, 1]), [4, 3])
    assert bps.push_pull(slices) is slices
    assert bps.broadcast_object({"a": 1}) == {"a": 1}
    bps.barrier()
    assert bps.join() == 0
    bps.start_timeline("/dev/null/x")  # nothing is recorded
    bps.stop_timeline()


def test_one_process_starts_nothing():
    """Neither threads nor sockets, and the core is not even loaded."""
    code = """
import os, keras, numpy as np, tf_byteps
strategy = tf_byteps.BytePSStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(np.ones((8, 2)), np.ones((8, 1)), verbose=0)
tf_byteps.push_pull([1.0])
links = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
         if os.path.exists(f"/proc/self/fd/{n}")]
tasks = "/proc/self/task"
threads = [open(f"{tasks}/{t}/comm").read() for t in os.listdir(tasks)]
import sys
print([l for l in links if "socket" in l], [t for t in threads if "bps" in t],
      "tf_byteps._core" in sys.modules)
"""
    done = run_python("-c", code, seconds=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[] [] False"


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: bps.push_pull(["a"]), "Received: string"),
        (lambda: bps.broadcast(["a"]), "Received: string"),
        (lambda: bps.allgather(["a"]), "Received: string"),
        (lambda: bps.push_pull(tf.ragged.constant([[1], []])), "a RaggedTensor"),
        (lambda: bps.push_pull(tf.sparse.eye(2)), "a SparseTensor"),
        (lambda: bps.push_pull([1.0], op="sum"), "Received: 'sum'"),
        (lambda: bps.push_pull([1]), "Average of int32 is not defined"),
        (lambda: bps.push_pull([True]), "Average of bool is not defined"),
        (lambda: bps.push_pull([1j], op=bps.Sum), "Received: complex128"),
        (lambda: bps.push_pull([1.0], compression="fp16"), "Received: 'fp16'"),
        (lambda: bps.broadcast([1.0], root_rank=1), "in [0, 1). Received: 1"),
        (lambda: bps.broadcast([1.0], root_rank="0"), "Received: '0'"),
        (lambda: bps.allgather(1.0), "a scalar of type float32"),
        (tf.function(bps.join, autograph=False), "call it eagerly, after the loop"),
        (
            lambda: bps.push_pull(tf.IndexedSlices([1.0], [0]), op=bps.Max),
            "must be Average or Sum",
        ),
        (lambda: bps.DistributedOptimizer("sgd"), "Received: 'sgd'"),
        (
            lambda: bps.DistributedOptimizer(
                bps.DistributedOptimizer(keras.optimizers.SGD())
            ),
            "would be combined twice",
        ),
        (
            lambda: bps.DistributedOptimizer(keras.optimizers.SGD(), op=bps.Max),
            "must be tf_byteps.Average or Sum",
        ),
        (lambda: bps.DistributedGradientTape(None), "Received: None"),
    ],
)
def test_a_mistake_is_a_sentence(job, call, words):
    with pytest.raises(ArgumentError) as err:
        call()
    assert words in str(err.value)


def test_a_distributed_optimizer_is_still_of_its_class(job):
    optimizer = bps.DistributedOptimizer(keras.optimizers.Adam(0.1), name="mine")
    assert isinstance(optimizer, keras.optimizers.Adam)
    assert optimizer.name == "mine"
    config = keras.optimizers.serialize(optimizer)
    assert config["class_name"] == "Adam"
    assert type(keras.optimizers.deserialize(config)) is keras.optimizers.Adam


def test_a_tape_records_before_and_after_it_is_wrapped(job):
    x = tf.Variable(3.0)
    with tf.GradientTape(persistent=True) as tape:
        y = x * x
    wrapped = bps.DistributedGradientTape(tape)
    assert float(wrapped.gradient(y, x)) == 6.0
    assert wrapped.gradient(y, {"a": [x]})["a"][0] == 6.0
    with bps.DistributedGradientTape(tf.GradientTape()) as later:
        later.watch(c := tf.constant(2.0))
        y = c**3
    assert float(later.gradient(y, c)) == 12.0


def test_another_tensorflow_is_one_sentence():
    with pytest.raises(BuildError) as err:
        _native.check_tensorflow("2.20.0")
    built = tf.__version__
    assert f"was built for TensorFlow {built}, and this is TensorFlow 2.20.0" in str(
        err.value
    )
    assert "pip install" in str(err.value)


def test_an_old_tensorflow_is_told_at_first_use(tmp_path):
    """Before anything is loaded that would not fit."""
    (tmp_path / "tensorflow.py").write_text("__version__ = '2.4.0'\n")
    code = "from tf_byteps import _native; _native.op_library()"
    environment = environment_of()
    environment["PYTHONPATH"] = f"{tmp_path}:{environment['PYTHONPATH']}"
    done = run_python("-c", code, environment=environment)
    assert done.returncode == 1
    assert "this is TensorFlow 2.4.0: install it again" in done.stderr.splitlines()[-1]


def test_importing_the_package_does_nothing():
    code = "import sys, tf_byteps; print('tensorflow' in sys.modules)"
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("False")
    for name in bps.__all__:
        assert getattr(bps, name) is not None


def test_a_forked_child_has_no_job(job):
    """Its threads were the parent's; data loaders fork."""
    assert runtime.current() is not None
    pid = os.fork()
    if pid == 0:
        os._exit(0 if bps.is_initialized() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
