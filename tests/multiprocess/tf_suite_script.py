"""What a worker of test_tf_suite.py runs: TensorFlow's own tests of strategies.

The installed package has them as methods that take a strategy, in
`strategy_test_lib`. All workers run the same ones in the same order, eagerly and in
a TF1 graph. Reports what came of each, what is left out and why, and the names of
all that the library has; and what came of our own cases.
"""

import contextlib
import inspect

import strategy_api_cases
import tensorflow as tf
from tensorflow.python.distribute import strategy_test_lib as library
from tensorflow.python.eager import context

import tf_byteps as bps
from support.worker import outcome, report

GENERAL = library.DistributionTestBase
ONE_DEVICE = library.OneDeviceDistributionTestBase
TWO_DEVICES = library.TwoDeviceDistributionTestBase
ONE_HOST = library.RemoteSingleWorkerMirroredStrategyBase
EAGER, GRAPH = "eager", "graph"

PART = "called by others that run here"
LOCAL_IDS = "takes a replica's id for an index into this process's devices"
SERVERS = "runs a TF1 session on servers that the test starts itself"
LEFT_OUT = {
    (GENERAL, "_test_numpy_dataset"): "for TF1's strategies; skips itself",
    (GENERAL, "_input_fn_to_test_input_context"): PART,
    (ONE_DEVICE, "_test_device_and_input_device_are_colocated"): SERVERS,
    (ONE_DEVICE, "_test_device_and_input_device_are_colocated_with_function"): SERVERS,
    (TWO_DEVICES, "_test_collective_comms"): PART,
    (TWO_DEVICES, "_test_collective_comms_gradients"): PART,
    (TWO_DEVICES, "_test_collective_comms_gradient_tape"): PART,
    (ONE_HOST, "_get_num_gpus"): "asks how many replicas there are",
    (ONE_HOST, "_testDeviceScope"): "expects a remote server's device",
}
CASES = {}
strategy = bps.BytePSStrategy()
size, rank = bps.size(), bps.rank()


class AllReplicas:
    """The strategy as seen by a process that holds all of the cluster's replicas."""

    def __getattr__(self, name):
        return getattr(strategy, name)

    def experimental_local_results(self, value):
        def gather(v):
            return tf.distribute.get_replica_context().all_gather(v[tf.newaxis], 0)

        return tuple(tf.unstack(strategy.run(gather, [value]), size))

    unwrap = experimental_local_results

    def make_input_fn_iterator(self, input_fn):
        return strategy.make_input_fn_iterator(
            lambda context: input_fn(context).shard(size, context.input_pipeline_id)
        )


def add(base, method, *arguments, modes=(EAGER,), test=None, **options):
    """Adds a method as a case, or `test`, which is called with an instance."""
    for mode in modes:
        what = [mode, *(f"{k}={v}" for k, v in options.items())]

        def run(instance, mode=mode):
            with in_graph() if mode == GRAPH else contextlib.nullcontext():
                if test is not None:
                    test(instance)
                else:
                    getattr(instance, method)(strategy, *arguments, **options)

        CASES[base, method, ", ".join(what)] = run


@contextlib.contextmanager
def in_graph():
    with tf.Graph().as_default(), context.graph_mode():
        yield


def add_general():
    add(GENERAL, "_test_minimize_loss_eager")
    add(GENERAL, "_test_minimize_loss_graph")
    add(GENERAL, "_test_call_and_merge_exceptions", modes=[EAGER, GRAPH])
    add(GENERAL, "_test_global_step_update", modes=[EAGER, GRAPH])
    add(GENERAL, "_test_trainable_variable", modes=[EAGER, GRAPH])


def add_inputs():
    """Every worker's function gives 0 to 9."""
    values = [[i] for i in range(10)]

    def input_fn(test, input_):
        return test._input_fn_to_test_input_context(input_, size, size, rank)

    def dataset():
        return tf.data.Dataset.range(10)

    def one_by_one():
        return tf.compat.v1.data.make_one_shot_iterator(dataset()).get_next

    def iterable(test):
        test._test_input_fn_iterable(strategy, input_fn(test, dataset), values)

    def iterator(test, input_=dataset, **options):
        test._test_input_fn_iterator(
            strategy.make_input_fn_iterator(input_fn(test, input_)),
            strategy.extended.worker_devices,
            values,
            **options,
        )

    def iterator_of_callable(test):
        iterator(test, one_by_one, test_reinitialize=False)

    add(GENERAL, "_test_input_fn_iterable", test=iterable)
    add(GENERAL, "_test_input_fn_iterator", test=iterator, modes=[EAGER, GRAPH])
    add(
        GENERAL,
        "_test_input_fn_iterator",
        test=iterator_of_callable,
        modes=[EAGER, GRAPH],
        of="callable",
    )


def add_replica_0():
    def summary(test):
        if rank == 0:
            test._test_summary_for_replica_zero_only(strategy)
        else:  # The file's header, and no event.
            with test.assertRaisesRegex(AssertionError, "has length of 1"):
                test._test_summary_for_replica_zero_only(strategy)

    add(GENERAL, "_test_summary_for_replica_zero_only", test=summary)
    if size == 1:
        add(GENERAL, "_test_replica_id", modes=[EAGER, GRAPH])
    else:
        LEFT_OUT[GENERAL, "_test_replica_id"] = LOCAL_IDS


def add_one_device():
    """The value of one device, of which there are `size`."""
    both = [EAGER, GRAPH]
    add(ONE_DEVICE, "_test_run", modes=both)
    add(ONE_DEVICE, "_test_all_reduce_mean", modes=both)
    add(ONE_DEVICE, "_test_all_reduce_mean_gradients", modes=[GRAPH])
    add(ONE_DEVICE, "_test_all_reduce_mean_gradient_tape", modes=both)
    sums = {
        "_test_all_reduce_sum": both,
        "_test_all_reduce_sum_gradients": [GRAPH],
        "_test_all_reduce_sum_gradient_tape": both,
    }
    for method, modes in sums.items():
        if size == 1:
            add(ONE_DEVICE, method, modes=modes)
        else:
            LEFT_OUT[ONE_DEVICE, method] = "its sum has one term; see _collective_comms"
    add(
        ONE_DEVICE,
        "_test_collective_comms",
        library._all_sum,
        (4.0, [42.0, 43.0]),
        (4.0 * size, [42.0 * size, 43.0 * size]),
        modes=both,
    )
    for method, modes in {
        "_test_collective_comms_gradients": [GRAPH],
        "_test_collective_comms_gradient_tape": both,
    }.items():
        add(ONE_DEVICE, method, library._all_sum, [4.0], [4.0 * size], modes=modes)


def add_two_devices():
    methods = (
        "_test_run",
        "_test_all_reduce_sum",
        "_test_all_reduce_sum_gradients",
        "_test_all_reduce_sum_gradient_tape",
        "_test_all_reduce_mean",
        "_test_all_reduce_mean_gradients",
        "_test_all_reduce_mean_gradient_tape",
    )
    for method in methods:
        if size != 2:
            LEFT_OUT[TWO_DEVICES, method] = "its numbers are those of two replicas"
            continue
        for traced in (False, True):

            def test(test, method=method, traced=traced):
                getattr(test, method)(AllReplicas(), run_in_function=traced)

            modes = [EAGER, GRAPH]
            if method.endswith("gradients"):
                modes = [EAGER] if traced else [GRAPH]
            elif traced:
                modes = [EAGER]
            add(TWO_DEVICES, method, test=test, modes=modes, run_in_function=traced)


def add_one_host():
    add(ONE_HOST, "_testNumReplicasInSync")
    add(ONE_HOST, "_testMinimizeLoss", modes=[EAGER, GRAPH])
    for method in (
        "_testMakeInputFnIteratorWithDataset",
        "_testMakeInputFnIteratorWithCallable",
    ):
        if size == 1:
            add(ONE_HOST, method)
        else:
            LEFT_OUT[ONE_HOST, method] = "all replicas in one process"


def methods():
    """Yields (class, method) of all that the library has."""
    for value in vars(library).values():
        if inspect.isclass(value) and issubclass(value, tf.test.TestCase):
            for name, method in vars(value).items():
                if inspect.isfunction(method) and not name.startswith("__"):
                    yield value, name


def main():
    for add_some in (
        add_general,
        add_inputs,
        add_replica_0,
        add_one_device,
        add_two_devices,
        add_one_host,
    ):
        add_some()

    def instance(base, run):
        members = {"runTest": run, "_get_num_gpus": lambda test: size}
        return type(base.__name__, (base,), members)()

    def name(base, method):
        return f"{base.__name__}.{method}"

    report(
        "outcomes",
        {
            f"{name(base, method)} ({what})": outcome(instance(base, run))
            for (base, method, what), run in CASES.items()
        },
    )
    report("ran", sorted({name(*key[:2]) for key in CASES}))
    report("left out", {name(*key): why for key, why in LEFT_OUT.items()})
    report("all", [name(*key) for key in methods()])
    report("our outcomes", strategy_api_cases.outcomes(strategy, rank))


if __name__ == "__main__":
    main()
