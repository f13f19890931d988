"""What recording a timeline costs: push-pull with it on against off.

Two jobs of two workers and a server take turns in one run; one of them records. CPU is
that of all three processes, in user and system mode, their writing included.

Target: time and CPU at most 1.02 of those without.
"""

import argparse
import statistics
import sys
import tempfile

from push_pull import MEGABYTES, Contestant, byteps_worker
from support.processes import start_job


def start(**environment):
    server, *workers = start_job((__file__, "worker"), 2, 1, **environment).values()
    return Contestant(server, workers)


def measure(partition_bytes, rounds, steps):
    """Prints the medians of the rounds' ratios, and their quartiles."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"TF_BYTEPS_PARTITION_BYTES": str(partition_bytes)}
        jobs = [start(**settings, TF_BYTEPS_TIMELINE=folder), start(**settings)]
        ratios = []
        try:
            for job in jobs:
                job.run(2)
            for number in range(rounds):
                order = jobs if number % 2 else jobs[::-1]
                on, off = sorted(
                    ((job is jobs[1], job.run(steps)) for job in order),
                    key=lambda pair: pair[0],
                )
                ratios.append([a / b for a, b in zip(on[1], off[1], strict=True)])
        finally:
            for job in jobs:
                job.stop()
    for what, values in zip(("time", "CPU"), zip(*ratios, strict=True), strict=True):
        low, median, high = statistics.quantiles(values, n=4)
        print(
            f"{MEGABYTES} MB in partitions of {partition_bytes}: {what} with a "
            f"timeline {median:.3f} of without (quartiles {low:.3f} to {high:.3f})",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=3, help="a round")
    parser.add_argument("--partition-bytes", type=int, nargs="*")
    args = parser.parse_args()
    for partition_bytes in args.partition_bytes or (4096000, 65536):
        measure(partition_bytes, args.rounds, args.steps)


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        byteps_worker()
    else:
        main()
