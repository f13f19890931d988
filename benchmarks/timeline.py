"""What recording a timeline costs: push-pull with it on against off.

Two jobs of two workers and a server take turns; one of them records. CPU is that of
all three processes, their writing included.
"""

import tempfile

from support import gradient_sets, jobs
from support.netbed import Loopback

SCRIPT = ("contestants.push_pull", "tf_byteps")
STEPS = 20  # a round; CPU is counted in units of 10 ms


def add_arguments(parser):
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--partition-bytes",
        type=int,
        nargs="+",
        default=[4096000, 0],
        help="0: what tf_byteps takes by itself",
    )


def run(options, report):
    (size,) = gradient_sets.sizes("64m")
    for partition_bytes in options.partition_bytes:
        settings, of = {}, "default size"
        if partition_bytes:
            settings["TF_BYTEPS_PARTITION_BYTES"] = of = str(partition_bytes)
        bed = Loopback(3)
        with (
            tempfile.TemporaryDirectory() as folder,
            jobs.tensorflow(bed, 2, 1, *SCRIPT, **settings) as off,
            jobs.tensorflow(
                bed, 2, 1, *SCRIPT, **settings, TF_BYTEPS_TIMELINE=folder
            ) as on,
        ):
            task = f"{size} 0"
            measured = jobs.compare(
                {"off": (off, task), "on": (on, task)},
                steps=STEPS,
                rounds=3 if options.quick else options.rounds,
            )
        without, recorded = measured["off"], measured["on"]
        what = f"64 MB in partitions of {of}: "
        time = recorded.seconds / without.seconds
        report.row(what + "time of that without", time, 1.02, at_most=True)
        cpu = recorded.cpu_seconds / without.cpu_seconds
        report.row(what + "CPU of that without", cpu, 1.02, at_most=True)
