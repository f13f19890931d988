"""`bps doctor`: what this machine and build can do, and how the cluster answers."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import platform
import resource
import shutil
import sys
import time

import tf_byteps
from tf_byteps import _native, config, errors, server
from tf_byteps import cluster as cluster_lib

_LARGE_BYTES = 64 * 2**20
_REPEATS = 5


def run_doctor() -> int:
    """Prints what it finds; returns 0 if training can run here, else 1."""
    good = _report_machine()
    text = config.tf_config()
    if not text:
        print("cluster      no TF_CONFIG: this process would train alone")
        return 0 if good else 1
    try:
        cluster = cluster_lib.Cluster.from_tf_config(text)
    except errors.ClusterError as err:
        print(f"cluster      {err}")
        return 1
    workers, servers = len(cluster.workers), len(cluster.servers)
    mixed = good and cluster.is_mixed(config.resolve().colocated_servers)
    kind = (
        f"{servers} dedicated and {workers} colocated"
        if mixed
        else servers or "colocated"
    )
    print(
        f"cluster      {workers} workers, {kind} servers; this is {cluster.task_type} "
        f"{cluster.task_index} at {cluster.address}"
    )
    if not good:
        return 1
    try:
        if cluster.task_type == "ps":
            server.run_server()
            print("peers        served all workers until they were done")
        else:
            _measure()
    except errors.Error as err:
        print(f"peers        {err}")
        return 1
    return 0


def _report_machine() -> bool:
    """Prints what needs no cluster; returns whether training can run."""
    print(f"tf_byteps    {tf_byteps.__version__}, Python {platform.python_version()}")
    print(f"machine      {platform.machine()}, {os.cpu_count()} cores, {_memory()}")
    good = True
    try:
        _native.core()
        print("core         loaded; transports: tcp, shared memory, loopback (no RDMA)")
    except errors.BuildError as err:
        print(f"core         {err}")
        good = False
    try:
        import tensorflow as tf

        _native.op_library()
        gpus = len(tf.config.list_physical_devices("GPU"))
        print(
            f"tensorflow   {tf.__version__}, the build fits; {gpus} GPUs"
            f"{' (tensors pass through host memory)' if gpus else ''}"
        )
    except ImportError as err:  # errors.BuildError too
        print(f"tensorflow   {err}")
        good = False
    try:
        print(f"keras        {importlib.metadata.version('keras')}")
    except importlib.metadata.PackageNotFoundError:
        print("keras        not installed: pip install 'keras==3.15.*'")
        good = False
    shm = pathlib.Path("/dev/shm")
    free = f"{shutil.disk_usage(shm).free >> 20} MiB free" if shm.is_dir() else "none"
    print(f"/dev/shm     {free}")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    memlock = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    locked = "unlimited" if memlock < 0 else f"{memlock >> 10} KiB"
    print(f"limits       {files} open files, {locked} locked memory")
    try:
        print(f"settings     {config.describe(config.resolve())}")
    except errors.ConfigError as err:
        print(f"settings     {err}")
        good = False
    return good


def _memory() -> str:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return f"{pages * size / 2**30:.1f} GiB memory"


def _measure() -> None:
    """Joins the job as a worker, and times push-pulls with all the others."""
    import tensorflow as tf

    begin = time.monotonic()
    tf_byteps.init()
    try:
        print(f"peers        all here after {time.monotonic() - begin:.1f} s")
        for what, count in (("4 bytes", 1), ("64 MiB", _LARGE_BYTES // 4)):
            tensor = tf.ones([count])
            tf_byteps.push_pull(tensor, "tf_byteps/doctor", tf_byteps.Sum)  # warm
            begin = time.monotonic()
            for _ in range(_REPEATS):
                total = tf_byteps.push_pull(tensor, "tf_byteps/doctor", tf_byteps.Sum)
            seconds = (time.monotonic() - begin) / _REPEATS
            if float(total[0]) != tf_byteps.size():
                raise errors.Error(
                    f"a sum of ones is wrong: expected {tf_byteps.size()}. "
                    f"Received: {float(total[0])}"
                )
            rate = f", {count * 4 / seconds / 1e9:.2f} GB/s" if count > 1 else ""
            print(f"push-pull    {what}: {seconds * 1e3:.2f} ms{rate}")
        tf_byteps.barrier()
    except tf.errors.OpError as err:
        raise errors.Error(err.message) from err
    finally:
        tf_byteps.shutdown()
    sys.stdout.flush()
