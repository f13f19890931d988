"""TF_CONFIG and resolvers: who is who, and what a mistake is told."""

import json

import pytest

from tf_byteps import config
from tf_byteps.cluster import Cluster, checked_bandwidths, core_options
from tf_byteps.errors import ClusterError, ConfigError


def tf_config(cluster, task="worker", index=0):
    return json.dumps({"cluster": cluster, "task": {"type": task, "index": index}})


def test_workers_and_servers():
    text = tf_config({"worker": ["a:1", "b:1"], "ps": ["c:1"]}, "worker", 1)
    cluster = Cluster.from_tf_config(text)
    assert (cluster.rank, cluster.size) == (1, 2)
    assert cluster.address == "b:1"
    assert not cluster.is_chief
    server = Cluster.from_tf_config(
        tf_config({"worker": ["a:1", "b:1"], "ps": ["c:1"]}, "ps")
    )
    assert server.address == "c:1"
    assert server.digest() == cluster.digest()


def test_colocated_servers_and_local_ranks():
    text = tf_config({"worker": ["a:1", "b:1", "a:2"]}, "worker", 2)
    cluster = Cluster.from_tf_config(text)
    assert (cluster.local_rank, cluster.local_size) == (1, 2)


def test_a_job_on_one_host():
    def on_one_host(workers, servers):
        return Cluster(tuple(workers), tuple(servers), "ps", 0).is_on_one_host

    assert on_one_host(["a:1", "a:2"], ["a:3"])
    assert on_one_host(["a:1", "a:2"], [])
    assert not on_one_host(["a:1", "a:2"], ["b:1"])
    assert not on_one_host(["a:1", "b:1"], ["a:2"])


@pytest.mark.parametrize(
    "workers, servers, mixed",
    [
        (["a:1", "b:1"], ["c:1"], {"auto": True, "on": True, "off": False}),
        (["a:1", "b:1"], ["b:2"], {"auto": False, "on": True, "off": False}),
        (["a:1", "b:1"], ["c:1", "d:1"], {"auto": False, "on": True, "off": False}),
        (["a:1"], ["c:1"], {"auto": False, "on": True, "off": False}),
        (["a:1", "b:1"], [], {"auto": False, "on": False, "off": False}),
    ],
)
def test_workers_serve_beside_dedicated_servers_where_it_helps(workers, servers, mixed):
    cluster = Cluster(tuple(workers), tuple(servers), "worker", 0)
    assert {choice: cluster.is_mixed(choice) for choice in mixed} == mixed


def test_what_decides_the_placement_is_agreed_on():
    cluster = Cluster(("a:1", "b:1"), ("c:1",), "worker", 0)

    def digest(**settings):
        return core_options(cluster, config.resolve(settings, {}))["cluster_digest"]

    assert digest() == digest(partition_bytes=64) == digest(colocated_servers="on")
    assert digest() != digest(colocated_servers="off")
    assert digest() != digest(bandwidths="1,1,2") != digest(bandwidths="1,2,1")


def test_bandwidths():
    assert checked_bandwidths("", 2, 1) == []
    assert checked_bandwidths("1, 2.5,1e3", 2, 1) == [1, 2.5, 1000]


@pytest.mark.parametrize(
    "text, words",
    [
        (
            "1,2",
            "must have 3 numbers, for 2 workers and 1 dedicated servers. Received: 2",
        ),
        ("1,2,-3", "positive numbers with commas between them. Received: '1,2,-3'"),
        ("1,2,0", "positive numbers"),
        ("1,2,inf", "positive numbers"),
        ("1,,2", "positive numbers"),
        ("fast", "Received: 'fast'"),
    ],
)
def test_wrong_bandwidths_are_a_sentence(text, words):
    with pytest.raises(ConfigError) as err:
        checked_bandwidths(text, 2, 1)
    assert words in str(err.value)


def test_a_chief_is_worker_0():
    jobs = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    chief = Cluster.from_tf_config(tf_config(jobs, "chief"))
    worker = Cluster.from_tf_config(tf_config(jobs, "worker", 1))
    assert (chief.rank, chief.is_chief, chief.size) == (0, True, 3)
    assert (worker.rank, worker.address) == (2, "c:1")


@pytest.mark.parametrize("text", ["{}", '{"cluster": {}}'])
def test_an_empty_description_is_one_process(text):
    assert Cluster.from_tf_config(text) == Cluster.single()


def test_ipv6():
    cluster = Cluster.from_tf_config(tf_config({"worker": ["[::1]:7", "[::1]:8"]}))
    assert cluster.address == "[::1]:7"


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "must be JSON"),
        ("{cluster}", "must be JSON"),
        ("[]", 'an object with "cluster" and "task"'),
        ('{"task": {"type": "worker", "index": 0}}', 'must have a "cluster"'),
        ('{"cluster": {"worker": ["a:1"]}}', "Received: no task"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"index": 0}}', '"type"'),
        ('{"cluster": ["a:1"], "task": {"type": "worker", "index": 0}}', "must map"),
        (tf_config({"worker": "a:1"}), 'must be a list of addresses. Received: "a:1"'),
        (tf_config({"worker": []}), "at least one worker"),
        (tf_config({"ps": ["a:1"]}, "ps"), "at least one worker"),
        (tf_config({"worker": ["a:1", "a:1"]}), "a:1 for worker 0 and for worker 1"),
        (
            tf_config({"worker": ["a:1"], "ps": ["a:1"]}),
            "a:1 for worker 0 and for ps 0",
        ),
        (tf_config({"worker": ["a:1"]}, "worker", 1), "in [0, 1)"),
        (tf_config({"worker": ["a:1"]}, "worker", -1), "Received: -1"),
        (tf_config({"worker": ["a:1"]}, "worker", "0"), "Received: '0'"),
        (tf_config({"worker": ["a:1"]}, "worker", True), "Received: True"),
        (tf_config({"worker": ["a:1"]}, "ps"), "has 0 of type ps"),
        (tf_config({"worker": ["a:1"]}, "boss"), "Received: 'boss'"),
        (tf_config({"worker": ["a:1"], "boss": ["b:1"]}), "Received: boss"),
        (
            tf_config({"worker": ["a:1"], "evaluator": ["b:1"]}, "evaluator"),
            "no part of the job",
        ),
        (tf_config({"chief": ["a:1", "b:1"]}, "chief"), "at most one chief"),
        (tf_config({"worker": ["a"]}), "Received: 'a'"),
        (tf_config({"worker": ["a:0"]}), "a port from 1 to 65535"),
        (tf_config({"worker": ["a:99999"]}), "Received: 'a:99999'"),
        (tf_config({"worker": [":1"]}), "Received: ':1'"),
        (tf_config({"worker": ["::1:7"]}), "Received: '::1:7'"),
        (tf_config({"worker": [7]}), "Received: 7"),
    ],
)
def test_a_mistake_says_what_was_expected_and_received(text, words):
    with pytest.raises(ClusterError) as err:
        Cluster.from_tf_config(text)
    assert words in str(err.value)
    assert "TF_CONFIG" in str(err.value)
    assert "Received" in str(err.value)


def test_a_long_description_is_cut():
    with pytest.raises(ClusterError) as err:
        Cluster.from_tf_config("x" * 10000)
    assert len(str(err.value)) < 400


def test_a_resolver():
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": ["a:1", "b:1"], "ps": ["c:1"]}),
        task_type="worker",
        task_id=1,
    )
    cluster = Cluster.from_resolver(resolver)
    assert (cluster.rank, cluster.size, cluster.servers) == (1, 2, ("c:1",))
    nothing = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({})
    )
    assert Cluster.from_resolver(nothing) == Cluster.single()
