"""Processes of a job on this host, and the CPU that they use."""

import json
import os
import pathlib
import secrets
import subprocess
import sys

from tf_byteps.launch import free_ports

_TICKS = os.sysconf("SC_CLK_TCK")


def spawn(*arguments, **environment):
    """Starts Python with pipes to its standard input and output."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def start_job(worker, workers, servers, **environment):
    """Starts a job whose workers run `python *worker`; returns them by name."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(workers + servers)]
    cluster = {"worker": addresses[:workers]}
    if servers:
        cluster["ps"] = addresses[workers:]
    token = secrets.token_hex(8)
    commands = {"server": ("-P", "-m", "tf_byteps", "server"), "worker": worker}
    processes = {}
    for kind, count in (("server", servers), ("worker", workers)):
        for index in range(count):
            task = {"type": "ps" if kind == "server" else kind, "index": index}
            processes[f"{kind} {index}"] = spawn(
                *commands[kind],
                TF_CONFIG=json.dumps({"cluster": cluster, "task": task}),
                TF_BYTEPS_JOB_TOKEN=token,
                **environment,
            )
    return processes


def cpu_seconds(process):
    """User and system time of a process so far."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text()
    user, system = fields.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS


def stop(processes):
    """Ends processes that end with their input, workers before servers."""
    for process in processes:
        process.stdin.close()
    for process in processes:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
