"""What a worker and a server cost that have nothing to do.

Target: under 1 % of a core each, with dedicated and with colocated servers.
"""

import time

from support.processes import cpu_seconds, start_job, stop

SECONDS = 10

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


def measure(workers, servers):
    """Percent of a core of each process of a job that waits."""
    processes = start_job(("-c", WORKER), workers, servers)
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
        stop(list(processes.values()))


def main():
    for servers in (1, 0):
        print(f"2 workers, {servers or 'colocated'} server(s), idle for {SECONDS} s:")
        for name, percent in measure(2, servers).items():
            print(f"  {name:9} {percent:5.2f} % of a core (under 1)")


if __name__ == "__main__":
    main()
