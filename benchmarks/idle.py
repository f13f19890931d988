"""What a worker and a server cost that have nothing to do."""

import time

from support import jobs
from support.netbed import Loopback

SECONDS = 10


def add_arguments(parser):
    parser.add_argument("--seconds", type=int, default=SECONDS)


def run(options, report):
    seconds = 2 if options.quick else options.seconds
    for servers in (1, 0):
        with jobs.tensorflow(
            Loopback(3), 2, servers, "contestants.push_pull", "tf_byteps"
        ) as job:
            job.run("4000 0", 10)
            before = job.cpu_seconds()
            time.sleep(seconds)
            after = job.cpu_seconds()
        for task, used in after.items():
            what = f"{task} of 2 workers, {servers or 'colocated'} servers: % of a core"
            report.row(what, 100 * (used - before[task]) / seconds, 1, at_most=True)
