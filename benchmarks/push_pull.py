"""A 64 MB push-pull over loopback TCP against plain blocking sockets.

Two workers and one server, three processes each. The sockets do the same work with
the least that can: each worker sends the tensor in pieces of the size of a partition
and receives the sums, in two threads; the server receives both tensors, adds, and
sends the sum to both. Both jobs run in one go and take turns, since the machine may
be shared. CPU is that of all three processes, in user and system mode.

Targets: throughput at least 0.7, CPU at most 1.3 of the sockets'.
"""

import argparse
import json
import socket
import statistics
import sys
import threading
import time

import numpy as np
from support.processes import cpu_seconds, spawn, start_job, stop

from tf_byteps.launch import free_ports

MEGABYTES = 64
PIECE = 4096000  # the default of partition_bytes


def serve(steps_until_stop, step):
    """Runs `step` as often as each line of standard input says; answers its time."""
    print("ready", flush=True)
    for line in steps_until_stop:
        begin = time.monotonic()
        for _ in range(int(line)):
            step()
        print(time.monotonic() - begin, flush=True)


# --- tf_byteps ---------------------------------------------------------------------


def byteps_worker():
    import tensorflow as tf

    import tf_byteps as bps

    bps.init()
    tensor = tf.ones([MEGABYTES * 2**20 // 4]) * (bps.rank() + 1.0)

    def step():
        total = bps.push_pull(tensor, "benchmark", bps.Sum)
        if float(total[-1]) != 3:
            raise AssertionError(f"expected a sum of 3. Received: {total[-1]}")

    serve(sys.stdin, step)


# --- plain sockets -----------------------------------------------------------------


def pieces(array):
    """The array's bytes in pieces."""
    view = memoryview(array).cast("B")
    return [view[i : i + PIECE] for i in range(0, len(view), PIECE)]


def receive(connection, view):
    while view:
        view = view[connection.recv_into(view) :]


def sockets_worker(port, rank):
    connection = socket.create_connection(("127.0.0.1", port))
    tensor = np.full(MEGABYTES * 2**20 // 4, rank + 1, np.float32)
    total = np.empty_like(tensor)

    def step():
        sender = threading.Thread(
            target=lambda: [connection.sendall(piece) for piece in pieces(tensor)]
        )
        sender.start()
        for piece in pieces(total):
            receive(connection, piece)
        sender.join()
        if total[-1] != 3:
            raise AssertionError(f"expected a sum of 3. Received: {total[-1]}")

    serve(sys.stdin, step)


def sockets_server(port):
    """One thread receives from each worker, one sends to each."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        print("ready", flush=True)
        connections = [listener.accept()[0] for _ in range(2)]
    tensors = [np.empty(MEGABYTES * 2**20 // 4, np.float32) for _ in range(2)]
    parts = [pieces(tensor) for tensor in tensors]
    number = len(parts[0])
    while True:
        here = [[threading.Event() for _ in range(number)] for _ in range(2)]
        summed = [threading.Event() for _ in range(number)]
        ended = threading.Event()

        def read(i, here=here, ended=ended):
            try:
                for k, piece in enumerate(parts[i]):
                    if k == 0 and not connections[i].recv(1, socket.MSG_PEEK):
                        ended.set()
                        break
                    receive(connections[i], piece)
                    here[i][k].set()
            finally:
                for event in here[i]:
                    event.set()

        def write(i, summed=summed, ended=ended):
            for k, piece in enumerate(parts[0]):
                summed[k].wait()
                if ended.is_set():
                    return
                connections[i].sendall(piece)

        threads = [
            threading.Thread(target=f, args=(i,)) for f in (read, write) for i in (0, 1)
        ]
        for thread in threads:
            thread.start()
        for k in range(number):
            for events in here:
                events[k].wait()
            if not ended.is_set():
                a, b = (np.frombuffer(part[k], np.float32) for part in parts)
                np.add(a, b, out=a)
            summed[k].set()
        for thread in threads:
            thread.join()
        if ended.is_set():
            return


# --- both --------------------------------------------------------------------------


class Contestant:
    """Three processes that do steps when told."""

    def __init__(self, server, workers):
        self.server = server
        self.workers = workers
        for worker in workers:
            self._expect(worker, "ready")

    @staticmethod
    def _expect(process, word):
        line = process.stdout.readline()
        if word not in line:
            raise SystemExit(f"a process of the benchmark failed: {line!r}")

    def run(self, steps):
        """Seconds and CPU seconds a step."""
        processes = [self.server, *self.workers]
        before = sum(map(cpu_seconds, processes))
        begin = time.monotonic()
        for worker in self.workers:
            worker.stdin.write(f"{steps}\n")
            worker.stdin.flush()
        for worker in self.workers:
            float(worker.stdout.readline())
        seconds = time.monotonic() - begin
        return seconds / steps, (sum(map(cpu_seconds, processes)) - before) / steps

    def stop(self):
        stop([*self.workers, self.server])


def start_byteps():
    processes = start_job((__file__, "byteps"), workers=2, servers=1)
    server, *workers = processes.values()
    return Contestant(server, workers)


def start_sockets():
    (port,) = free_ports(1)
    server = spawn(__file__, "server", port)
    server.stdout.readline()
    return Contestant(server, [spawn(__file__, "sockets", port, i) for i in range(2)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=4, help="a round")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    contestants = {"sockets": start_sockets(), "tf_byteps": start_byteps()}
    measured = {name: [] for name in contestants}
    try:
        for contestant in contestants.values():
            contestant.run(2)
        for _ in range(args.rounds):
            for name, contestant in contestants.items():
                measured[name].append(contestant.run(args.steps))
    finally:
        for contestant in contestants.values():
            contestant.stop()
    seconds, cpu = (
        {
            name: statistics.median(v[i] for v in values)
            for name, values in measured.items()
        }
        for i in (0, 1)
    )
    result = {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "throughput_ratio": seconds["sockets"] / seconds["tf_byteps"],
        "cpu_ratio": cpu["tf_byteps"] / cpu["sockets"],
    }
    if args.json:
        print(json.dumps(result))
        return
    for name in contestants:
        print(
            f"{name:10} {seconds[name] * 1e3:7.1f} ms a step of {MEGABYTES} MB, "
            f"{cpu[name] * 1e3:7.1f} ms of CPU"
        )
    print(f"throughput {result['throughput_ratio']:.2f} of the sockets' (at least 0.7)")
    print(f"CPU        {result['cpu_ratio']:.2f} of the sockets' (at most 1.3)")


if __name__ == "__main__":
    role, *rest = sys.argv[1:] or ["main"]
    if role == "byteps":
        byteps_worker()
    elif role == "sockets":
        sockets_worker(*map(int, rest))
    elif role == "server":
        sockets_server(*map(int, rest))
    else:
        main()
