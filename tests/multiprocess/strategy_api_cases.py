"""Every public method of a strategy, with the values that tf.distribute promises.

Of `n` replicas, number `r` is here. What strategy_script.py has is not repeated.
`outcomes` runs the cases; the last fails if a public method was used by none.
"""

import unittest

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context as eager_context

from support.worker import outcome, sentence

AGGREGATION = tf.VariableAggregation
SYNCHRONIZATION = tf.VariableSynchronization
USED = set()


class Watched:
    """Hands everything on, and notes the names in USED."""

    def __init__(self, of):
        self._of = of

    def __getattr__(self, name):
        USED.add((kind(self._of), name))
        return getattr(self._of, name)


def kind(of):
    if isinstance(of, tf.distribute.ReplicaContext):
        return "ReplicaContext"
    return "Strategy" if isinstance(of, tf.distribute.Strategy) else "StrategyExtended"


def context():
    return Watched(tf.distribute.get_replica_context())


def plain(value):
    """A structure's tensors and variables as numbers and lists."""
    return tf.nest.map_structure(lambda v: np.array(v).tolist(), value)


class Case(unittest.TestCase):
    """What the cases share. `strategy` and `rank` are set by `outcomes`."""

    strategy = None
    rank = None

    def setUp(self):
        self.s = Watched(self.strategy)
        self.e = Watched(self.s.extended)
        self.n = self.s.num_replicas_in_sync
        self.r = self.rank
        self.total = self.n * (self.n + 1) // 2  # of r + 1 over all replicas
        self.own = self.s.experimental_distribute_values_from_function(
            lambda c: tf.constant([c.replica_id_in_sync_group + 1.0])
        )

    def equal(self, actual, expected):
        self.assertEqual(plain(actual), expected)

    def close(self, actual, expected):
        """Of float32 operations that may differ in their order."""
        np.testing.assert_allclose(plain(actual), expected, rtol=1e-6)

    def raises(self, words, function, *args, **kwargs):
        self.assertIn(words, sentence(function, *args, **kwargs))

    def both(self, function, *args):
        """What replicas return, eagerly and in a function."""
        return [
            self.s.run(function, args=args),
            tf.function(lambda: self.s.run(function, args=args))(),
        ]

    def variable(self, value=1.0, **options):
        with self.s.scope():
            return tf.Variable(value, **options)


class Contexts(Case):
    def test_scope(self):
        with self.s.scope():
            self.assertIs(tf.distribute.get_strategy(), self.strategy)
            self.assertTrue(tf.distribute.has_strategy())
            self.assertTrue(tf.distribute.in_cross_replica_context())
        self.assertFalse(tf.distribute.has_strategy())

    def test_run(self):
        def replica(x, y, z):
            assert not tf.distribute.in_cross_replica_context()
            return {"sum": x + y, "z": [z]}

        for function in (replica, tf.function(replica)):
            results = self.s.run(function, (self.own,), {"y": 0.5, "z": self.own})
            self.equal(results, {"sum": [self.r + 1.5], "z": [[self.r + 1.0]]})
        self.raises("list or tuple", self.s.run, replica, self.own)

    def test_call_for_each_replica(self):
        result = self.e.call_for_each_replica(
            lambda x, y: x * y, args=(self.own,), kwargs={"y": 2.0}
        )
        self.equal(result, [2.0 * (self.r + 1)])

    def test_replica_context(self):
        def replica():
            c = context()
            self.assertIs(c.strategy, self.strategy)
            self.assertEqual(
                [d[-5:] for d in c.devices], [self.e.worker_devices[0][-5:]]
            )
            return [c.replica_id_in_sync_group, c.num_replicas_in_sync]

        for result in self.both(replica):
            self.equal(result, [self.r, self.n])

    def test_merge_call(self):
        def merge(strategy, x, y):
            self.assertIs(strategy, self.strategy)
            self.assertTrue(tf.distribute.in_cross_replica_context())
            (local,) = strategy.experimental_local_results(x)
            return {"all": strategy.reduce("SUM", x, axis=None), "own": local + y}

        def replica(x):
            return context().merge_call(merge, args=(x,), kwargs={"y": 1.0})

        for result in self.both(replica, self.own):
            self.equal(result, {"all": [float(self.total)], "own": [self.r + 2.0]})

    def test_calls_in_the_wrong_context(self):
        def replica():
            reduced = sentence(self.s.reduce, "SUM", 1.0, axis=None)
            gathered = sentence(self.s.gather, tf.constant([1.0]), axis=0)
            return [reduced, gathered]

        for text in self.s.run(replica):
            self.assertIn("cross-replica context", text)
        with self.s.scope():
            self.assertIsNone(tf.distribute.get_replica_context())


class Reductions(Case):
    def test_reduce_scalars(self):
        scalar = self.s.run(lambda x: x[0], args=(self.own,))
        for axis in (None, 0):
            self.equal(self.s.reduce("SUM", scalar, axis=axis), self.total)
            self.close(self.s.reduce("mean", scalar, axis=axis), self.total / self.n)
        self.equal(self.s.reduce("SUM", 2.0, axis=None), 2.0 * self.n)
        self.equal(self.s.reduce("MEAN", 2.0, axis=None), 2.0)

    def test_reduce_along_axes(self):
        """Replica r has r + 1 rows of [r, 10 r]."""
        row = tf.constant([float(self.r), 10.0 * self.r])
        value = self.s.run(lambda: tf.tile(row[tf.newaxis], [self.r + 1, 1]))
        everybody = np.concatenate(
            [[[r, 10.0 * r]] * (r + 1) for r in range(self.n)], axis=0
        )
        for axis in (0, -2, (0, 1)):
            for reduce_op, function in (("SUM", np.sum), ("MEAN", np.mean)):
                self.close(
                    self.s.reduce(tf.distribute.ReduceOp[reduce_op], value, axis=axis),
                    function(everybody, axis=axis),
                )
        in_function = tf.function(lambda v: self.s.reduce("MEAN", v, axis=0))
        self.close(in_function(value), np.mean(everybody, axis=0))

    def test_reduce_structures_of_mixed_types(self):
        value = {
            "float": self.own,
            "int": [self.s.run(lambda: tf.constant([self.r], tf.int64))],
            "half": (self.s.run(lambda: tf.constant(self.r + 1, tf.float16)),),
        }
        result = self.s.reduce("SUM", value, axis=None)
        self.equal(
            result,
            {
                "float": [float(self.total)],
                "int": [[self.total - self.n]],
                "half": (float(self.total),),
            },
        )
        self.assertEqual(result["int"][0].dtype, tf.int64)
        self.assertEqual(result["half"][0].dtype, tf.float16)

    def test_reduce_rejects(self):
        self.raises("ValueError", self.s.reduce, "MAX", self.own, axis=None)
        self.raises("dimension 1", self.s.reduce, "MEAN", self.own, axis=1)

    def test_reduce_to(self):
        v = self.variable()
        for destinations in (v, self.own, self.e.worker_devices[0]):
            self.equal(
                self.e.reduce_to("SUM", self.own, destinations=destinations),
                [float(self.total)],
            )
        self.close(
            self.e.reduce_to(tf.distribute.ReduceOp.MEAN, self.own, destinations=v),
            [self.total / self.n],
        )
        self.equal(self.e.reduce_to("MEAN", v, destinations=v), 1.0)

    def test_batch_reduce_to(self):
        v = self.variable()
        two = self.s.run(lambda x: tf.cast(x, tf.int32) * 2, args=(self.own,))
        pairs = [(self.own, v), (two, v)]
        self.equal(
            self.e.batch_reduce_to("SUM", pairs),
            [[float(self.total)], [2 * self.total]],
        )

    def test_all_reduce_of_a_structure_of_mixed_types(self):
        types = (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64)
        options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=8)

        def replica(x):
            return context().all_reduce(
                "SUM", {t.name: [tf.cast(x, t)] for t in types}, options=options
            )

        for result in self.both(replica, self.own):
            self.equal(result, {t.name: [[self.total]] for t in types})
            for type_ in types:
                self.assertEqual(result[type_.name][0].dtype, type_)

    def test_all_reduce_of_slices(self):
        """Replica r adds r + 1 to row r, of n rows, and to row 0."""

        def replica(x):
            slices = tf.IndexedSlices(
                tf.stack([x, x]), tf.constant([self.r, 0]), tf.constant([self.n, 1])
            )
            sums, (means,) = (
                context().all_reduce("SUM", slices),
                context().all_reduce("MEAN", [slices]),
            )
            self.assertIsInstance(sums, tf.IndexedSlices)
            return tf.convert_to_tensor(sums), tf.convert_to_tensor(means)

        expected = np.array([[r + 1.0] for r in range(self.n)])
        expected[0] += self.total
        for sums, means in self.both(replica, self.own):
            self.equal(sums, expected.tolist())
            self.close(means, expected / self.n)


class Gathering(Case):
    def rows(self, dtype=tf.float32):
        """Replica r's value: r + 1 rows of [r, r]."""
        return self.s.run(lambda: tf.cast(tf.fill([self.r + 1, 2], self.r), dtype))

    def everybody(self):
        return [[float(r)] * 2 for r in range(self.n) for _ in range(r + 1)]

    def test_gather(self):
        for dtype in (tf.float32, tf.int32, tf.float16):
            self.equal(self.s.gather(self.rows(dtype), axis=0), self.everybody())
        in_function = tf.function(lambda v: self.s.gather(v, axis=0))
        self.equal(in_function(self.rows()), self.everybody())
        one = self.s.run(lambda x: x, args=(self.own,))
        self.equal(self.s.gather(one, 0), [r + 1.0 for r in range(self.n)])

    def test_gather_rejects(self):
        slices = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([0]))
        self.raises("IndexedSlices", self.s.gather, slices, axis=0)
        if self.n > 1:
            self.raises("axis", self.s.gather, tf.constant(1.0), axis=0)
            self.raises("axis", self.s.gather, self.own, axis=1)

    def test_all_gather(self):
        def replica(x, rows):
            return context().all_gather({"x": x, "rows": [rows]}, axis=0)

        for result in self.both(replica, self.own, self.rows()):
            self.equal(
                result,
                {"x": [r + 1.0 for r in range(self.n)], "rows": [self.everybody()]},
            )

        def columns(rows):
            return context().all_gather(tf.transpose(rows), axis=1)

        for result in self.both(columns, self.rows()):
            self.equal(result, np.transpose(self.everybody()).tolist())

    def test_gradient_of_all_gather(self):
        """Replica r's loss weighs row i with (r + 1) i: all add to its gradient."""

        def replica(rows):
            with tf.GradientTape() as tape:
                tape.watch(rows)
                everybody = context().all_gather(rows, axis=0)
                weights = tf.range(tf.shape(everybody)[0]) * (self.r + 1)
                loss = tf.reduce_sum(
                    everybody * tf.cast(weights, tf.float32)[:, tf.newaxis]
                )
            return tape.gradient(loss, rows)

        first = self.r * (self.r + 1) // 2
        expected = [
            [float(self.total * i)] * 2 for i in range(first, first + self.r + 1)
        ]
        for gradient in self.both(replica, self.rows()):
            self.equal(gradient, expected)


class Values(Case):
    def test_local_results(self):
        self.equal(self.s.experimental_local_results(self.own), ([self.r + 1.0],))
        structure = {"a": self.own, "b": [2.0]}
        self.equal(
            self.s.experimental_local_results(structure),
            ({"a": [self.r + 1.0], "b": [2.0]},),
        )
        self.equal(self.s.experimental_local_results(3.0), (3.0,))

    def test_values_from_a_function(self):
        value = self.s.experimental_distribute_values_from_function(
            lambda c: {"id": c.replica_id_in_sync_group, "n": c.num_replicas_in_sync}
        )
        for part in value.values():
            self.assertIsInstance(part, tf.distribute.DistributedValues)
        self.equal(self.s.run(lambda v: v, (value,)), {"id": self.r, "n": self.n})

    def test_broadcast_to(self):
        v = self.variable()
        self.equal(self.e.broadcast_to(tf.constant(3.0), destinations=v), 3.0)
        self.equal(self.e.broadcast_to(3, destinations=self.e.worker_devices[0]), 3)

    def test_devices(self):
        (device,) = self.e.worker_devices
        self.assertTrue(device.endswith("CPU:0"), device)
        self.assertEqual(self.e.parameter_devices, (device,))
        self.assertEqual(self.e.worker_devices_by_replica, [[device]])
        self.assertEqual(self.e.non_slot_devices([]), (device,))

    def test_what_tensorflow_asks(self):
        resolver = self.s.cluster_resolver
        if self.n > 1:
            self.assertEqual((resolver.task_type, resolver.task_id), ("worker", self.r))
        self.assertEqual(self.e.should_checkpoint, self.r == 0)
        self.assertEqual(self.e.should_save_summary, self.r == 0)
        self.assertEqual(self.e.experimental_between_graph, self.n > 1)
        self.assertTrue(self.e.experimental_should_init)
        self.assertFalse(self.e.experimental_require_static_shapes)
        self.assertTrue(self.e.experimental_enable_get_next_as_optional)


class Datasets(Case):
    def batches(self, dataset):
        return [plain(self.s.experimental_local_results(batch)[0]) for batch in dataset]

    def test_distribute_dataset(self):
        """A replica has its part of each global batch, of the last one too."""
        dataset = tf.data.Dataset.range(5 * self.n).batch(2 * self.n)
        distributed = self.s.experimental_distribute_dataset(
            dataset, tf.distribute.InputOptions(experimental_fetch_to_device=False)
        )
        first = [2 * self.r, 2 * self.r + 1]
        expected = [first, [2 * self.n + i for i in first], [4 * self.n + self.r]]
        self.assertEqual(self.batches(distributed), expected)
        self.assertEqual(self.batches(distributed), expected)  # and again
        self.assertEqual(int(distributed.cardinality), 3)

    def test_distribute_dataset_in_a_function(self):
        dataset = tf.data.Dataset.range(4 * self.n).batch(2 * self.n)

        @tf.function
        def total(distributed):
            result = tf.constant(0, tf.int64)
            for batch in distributed:
                result += self.s.reduce("SUM", batch, axis=0)
            return result

        distributed = self.s.experimental_distribute_dataset(dataset)
        self.equal(total(distributed), sum(range(4 * self.n)))

    def test_datasets_from_a_function(self):
        """Worker r has r + 1 batches; who has no more gets empty ones."""
        contexts = []

        def dataset(c):
            contexts.append(c)
            batch = c.get_per_replica_batch_size(3 * c.num_replicas_in_sync)
            values = tf.data.Dataset.range(3 * (c.input_pipeline_id + 1))
            return values.batch(batch)

        for distribute in (
            self.s.distribute_datasets_from_function,
            self.s.experimental_distribute_datasets_from_function,
        ):
            batches = self.batches(distribute(dataset))
            own = [[3 * i, 3 * i + 1, 3 * i + 2] for i in range(self.r + 1)]
            self.assertEqual(batches, own + [[]] * (self.n - self.r - 1))
        for c in contexts:
            self.assertEqual(
                (c.num_input_pipelines, c.input_pipeline_id, c.num_replicas_in_sync),
                (self.n, self.r, self.n),
            )

    def test_next_or_nothing(self):
        dataset = tf.data.Dataset.range(self.n).batch(self.n)
        iterator = iter(self.s.experimental_distribute_dataset(dataset))
        batch = iterator.get_next_as_optional().get_value()
        self.equal(self.s.experimental_local_results(batch), ([self.r],))
        self.equal(iterator.get_next_as_optional().has_value(), False)

    def test_per_replica_mode_is_refused(self):
        options = tf.distribute.InputOptions(
            experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA
        )
        dataset = tf.data.Dataset.range(4)
        for distribute, input_ in (
            (self.s.experimental_distribute_dataset, dataset),
            (self.s.distribute_datasets_from_function, lambda c: dataset),
        ):
            self.raises("expected InputReplicationMode", distribute, input_, options)


class Variables(Case):
    KINDS = tuple(
        (synchronization, aggregation)
        for synchronization in (
            SYNCHRONIZATION.AUTO,
            SYNCHRONIZATION.ON_WRITE,
            SYNCHRONIZATION.ON_READ,
        )
        for aggregation in AGGREGATION
    )

    def each_kind(self, check):
        """Calls `check(variable, on_read, aggregation)` for each combination."""
        for synchronization, aggregation in self.KINDS:
            with self.subTest(f"{synchronization}, {aggregation}"):
                v = self.variable(
                    synchronization=synchronization, aggregation=aggregation
                )
                check(v, synchronization == SYNCHRONIZATION.ON_READ, aggregation)

    def aggregated(self, aggregation, own, everybody):
        """What is left of a value of each replica.

        With ONLY_FIRST_REPLICA it is the first replica's of each process, as it is
        with MultiWorkerMirroredStrategy: users write what is the same on all.
        """
        return {
            AGGREGATION.SUM: sum(everybody),
            AGGREGATION.MEAN: sum(everybody) / self.n,
        }.get(aggregation, own)

    def test_properties(self):
        def check(v, on_read, aggregation):
            self.assertIsInstance(v, tf.distribute.DistributedValues)
            self.assertEqual(v.aggregation, aggregation)
            self.assertEqual(v.trainable, not on_read)
            self.assertEqual(
                v.synchronization,
                SYNCHRONIZATION.ON_READ if on_read else SYNCHRONIZATION.ON_WRITE,
            )

        self.each_kind(check)
        self.raises("NONE", lambda: self.variable(synchronization=SYNCHRONIZATION.NONE))
        self.raises("MEAN", lambda: self.variable(1, aggregation=AGGREGATION.MEAN))

    def test_assign_in_a_replica(self):
        """`assign` r + 1, then `assign_add` twice that, `assign_sub` r + 1."""
        own = self.r + 1.0
        everybody = [r + 1.0 for r in range(self.n)]

        def check(v, on_read, aggregation):
            def replica(x):
                updates = ((v.assign, 1), (v.assign_add, 2), (v.assign_sub, 1))
                return [tf.identity(update(k * x[0])) for update, k in updates]

            aggregated = self.aggregated(aggregation, own, everybody)
            here = own if on_read else aggregated
            for result in self.both(replica, self.own):
                self.close(result, [here, 3 * here, 2 * here])
            self.close(self.s.run(v.read_value), 2 * here)
            if on_read and aggregation == AGGREGATION.NONE:
                self.raises("Could not convert", v.read_value)
                return
            for read in (
                v.read_value,
                v.numpy,
                lambda: self.e.read_var(v),
                tf.function(lambda: v + 0.0),
            ):
                self.close(read(), 2 * aggregated)

        self.each_kind(check)

    def test_assign_across_replicas(self):
        """A sum is divided among the replicas."""

        def check(v, on_read, aggregation):
            if on_read and aggregation == AGGREGATION.NONE:
                return  # cannot be read
            with self.s.scope():
                v.assign(6.0)
                self.close(v.read_value(), 6.0)
                parts = on_read and aggregation == AGGREGATION.SUM
                self.close(self.s.run(v.read_value), 6.0 / (self.n if parts else 1))
                if parts:
                    self.raises("assign_add", v.assign_add, 1.0)
                else:
                    v.assign_add(2.0)
                    v.assign_sub(1.0)
                    self.close(v.read_value(), 7.0)

        self.each_kind(check)

    def test_a_number_is_not_aggregated(self):
        for aggregation in (AGGREGATION.MEAN, AGGREGATION.ONLY_FIRST_REPLICA):
            v = self.variable(0, dtype=tf.float32, aggregation=aggregation)
            for result in self.both(lambda v=v: tf.identity(v.assign(3.0))):
                self.equal(result, 3.0)

    def test_integers(self):
        v = self.variable(0, aggregation=AGGREGATION.SUM)
        self.s.run(lambda: v.assign_add(tf.constant(self.r + 1)))
        self.equal(v, self.total)
        v = self.variable(0, aggregation=AGGREGATION.ONLY_FIRST_REPLICA)
        self.s.run(lambda: v.assign_add(1))
        self.equal(v, 1)

    def test_scatter(self):
        v = self.variable([0.0] * self.n, aggregation=AGGREGATION.SUM)

        def replica(x):
            v.scatter_add(tf.IndexedSlices(x, tf.constant([self.r])))
            return tf.identity(v)

        expected = np.array([r + 1.0 for r in range(self.n)])
        for times, result in enumerate(self.both(replica, self.own), 1):
            self.close(result, times * expected)
        self.raises(
            "only supported",
            lambda: self.s.run(
                lambda x: v.scatter_update(tf.IndexedSlices(x, tf.constant([0]))),
                (self.own,),
            ),
        )

    def test_update(self):
        v = self.variable()

        def add(v, x, twice):
            return v.assign_add(x[0] + 2 * twice)

        with self.s.scope():
            total = self.e.reduce_to("SUM", self.own, destinations=v)
            self.e.update(v, add, args=(total,), kwargs={"twice": 0.5})
            self.equal(v.read_value(), self.total + 2.0)
            (updated,) = self.e.update(v, add, (total, 0.0), group=False)
            self.equal(updated, 2 * self.total + 2.0)

        def replica(x):
            total = context().all_reduce("SUM", x)
            self.e.update(v, add, args=(total,), kwargs={"twice": 0.0})
            return tf.identity(v)

        for times, result in enumerate(self.both(replica, self.own), 3):
            self.equal(result, times * self.total + 2.0)

    def test_update_non_slot(self):
        v = self.variable()
        devices = self.e.non_slot_devices([v])
        with self.s.scope():
            self.e.update_non_slot(devices, lambda x: v.assign(2 * x), args=(2.0,))
            (result,) = self.e.update_non_slot(
                devices, lambda: tf.constant(5.0), group=False
            )
        self.equal([v, result], [4.0, 5.0])

    def test_where_variables_are_from(self):
        v = self.variable()
        self.assertTrue(self.e.variable_created_in_scope(v))
        other = tf.Variable(1.0)
        self.assertFalse(self.e.variable_created_in_scope(other))
        self.assertIs(self.e.value_container(v.values[0]), v)
        self.assertIs(self.e.value_container(v), v)
        self.assertIs(self.e.value_container(other), other)

    def test_colocate_vars_with(self):
        v = self.variable()
        for colocate in (self.s.colocate_vars_with, self.e.colocate_vars_with):
            with self.s.scope(), colocate(v):
                slot = tf.Variable(2.0)
            self.assertTrue(self.e.variable_created_in_scope(slot))
            self.assertEqual(slot.device, v.device)
            other = tf.Variable(1.0)
            with self.s.scope():
                self.raises("created in this", colocate, other)


class FirstTensorFlow(Case):
    """What is there for TensorFlow 1."""

    def test_unwrap_and_group(self):
        self.equal(self.s.unwrap(self.own), ([self.r + 1.0],))
        self.equal(self.s.group(self.own), [self.r + 1.0])

    def test_make_dataset_iterator(self):
        dataset = tf.data.Dataset.range(2 * self.n).batch(2 * self.n)
        iterator = self.s.make_dataset_iterator(dataset)
        iterator.initialize()
        batch = self.s.experimental_run(lambda x: x + 1, iterator)
        self.equal(batch, [2 * self.r + 1, 2 * self.r + 2])

    def test_make_input_fn_iterator(self):
        iterator = self.s.make_input_fn_iterator(
            lambda c: tf.data.Dataset.range(100).shard(
                c.num_input_pipelines, c.input_pipeline_id
            )
        )
        iterator.initialize()
        self.equal(self.s.experimental_run(lambda x: x, iterator), self.r)
        batch = iterator.get_next()
        self.equal(self.s.experimental_local_results(batch), (self.r + self.n,))

    def test_run_steps_on_iterator(self):
        with tf.Graph().as_default(), eager_context.graph_mode():
            dataset = tf.data.Dataset.range(3 * self.n).batch(self.n)
            iterator = self.s.make_dataset_iterator(dataset)

            def step(steps, batch):
                output = self.s.run(lambda x: x * 10, args=(batch,))
                steps.set_last_step_output("x", output[0], "SUM")
                return output

            steps = self.e.experimental_run_steps_on_iterator(
                step,
                iterator,
                iterations=3,
                initial_loop_values={"x": tf.constant(0, tf.int64)},
            )
            with tf.compat.v1.Session() as session:
                session.run(iterator.initializer)
                _, x = session.run([steps.run_op, steps.last_step_outputs["x"]])
        self.equal(x, 10 * sum(range(2 * self.n, 3 * self.n)))

    def test_make_numpy_dataset(self):
        x = np.arange(4.0)
        dataset = self.e.experimental_make_numpy_dataset((x, -x)).batch(4)
        ((a, b),) = dataset.as_numpy_iterator()
        self.equal([a, b], [x.tolist(), (-x).tolist()])

    def test_configuration(self):
        config = tf.compat.v1.ConfigProto()
        self.s.configure(session_config=config)
        self.assertIsNot(self.s.update_config_proto(config), config)
        cluster = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}
        self.raises("cluster", self.s.configure, None, cluster, "worker", 0)
        self.assertEqual(self.s.num_replicas_in_sync, self.n)
        self.assertEqual(len(self.e.worker_devices), 1)


class All(Case):
    def test_no_public_method_is_unused(self):
        public = {
            (kind(of), name)
            for of in (self.strategy, self.strategy.extended)
            for name in dir(of)
            if name not in OWN
        } | {("ReplicaContext", name) for name in dir(tf.distribute.ReplicaContext)}
        unused = {key for key in public if not key[1].startswith("_")} - USED
        self.assertEqual(unused, set())


# Of BytePSStrategy's inner half; no part of what users call.
OWN = ("in_use", "job")

CASES = (
    Contexts,
    Reductions,
    Gathering,
    Values,
    Datasets,
    Variables,
    FirstTensorFlow,
    All,
)


def outcomes(strategy, rank):
    """Runs all cases; "ok" or the error, by name."""
    Case.strategy, Case.rank = strategy, rank
    return {
        f"{case.__name__}.{name}": outcome(case(name))
        for case in CASES
        for name in unittest.defaultTestLoader.getTestCaseNames(case)
    }
