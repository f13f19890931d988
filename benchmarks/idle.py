"""What a worker and a server cost that have nothing to do.

Target: under 1 % of a core each, with dedicated and with colocated servers.
"""

import json
import os
import pathlib
import secrets
import subprocess
import sys
import time

SECONDS = 10
TICKS = os.sysconf("SC_CLK_TCK")

WORKER = """
import sys
import tensorflow as tf
import tf_byteps as bps

bps.init()
for _ in range(10):
    bps.push_pull(tf.ones([1000]), "x", bps.Sum)
print("ready", flush=True)
sys.stdin.read()
"""


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text()
    user, system = fields.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS


def measure(workers, servers):
    """Percent of a core of each process of a job that waits."""
    from tf_byteps.launch import free_ports

    addresses = [f"127.0.0.1:{port}" for port in free_ports(workers + servers)]
    cluster = {"worker": addresses[:workers]}
    if servers:
        cluster["ps"] = addresses[workers:]
    token = secrets.token_hex(8)
    processes = {}
    for kind, count in (("ps", servers), ("worker", workers)):
        for index in range(count):
            task = {"cluster": cluster, "task": {"type": kind, "index": index}}
            command = ["-P", "-m", "tf_byteps", "server"]
            processes[f"{kind} {index}"] = subprocess.Popen(
                [sys.executable, *(command if kind == "ps" else ["-c", WORKER])],
                env={
                    **os.environ,
                    "TF_CONFIG": json.dumps(task),
                    "TF_BYTEPS_JOB_TOKEN": token,
                    "TF_CPP_MIN_LOG_LEVEL": "2",
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
    try:
        for name, process in processes.items():
            if name.startswith("worker") and "ready" not in process.stdout.readline():
                raise SystemExit(f"{name} failed")
        before = {name: cpu_seconds(p) for name, p in processes.items()}
        time.sleep(SECONDS)
        return {
            name: 100 * (cpu_seconds(p) - before[name]) / SECONDS
            for name, p in processes.items()
        }
    finally:
        for process in reversed(processes.values()):
            process.stdin.close()
            process.wait(20)


def main():
    for servers in (1, 0):
        print(f"2 workers, {servers or 'colocated'} server(s), idle for {SECONDS} s:")
        for name, percent in measure(2, servers).items():
            print(f"  {name:9} {percent:5.2f} % of a core (under 1)")


if __name__ == "__main__":
    main()
