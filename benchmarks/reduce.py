"""The summation kernel against memcpy, on one core and out of cache."""

import statistics
import subprocess

from support import jobs


def add_arguments(parser):
    parser.add_argument("--rounds", type=int, default=21)


def run(options, report):
    count = 5 if options.quick else options.rounds
    program = jobs.build() / "bench_reduce"
    printed = subprocess.check_output([program, str(count)], text=True)
    rounds = (map(float, line.split()) for line in printed.splitlines())
    columns = zip(*rounds, strict=True)
    copy, float32, float16, bfloat16 = map(statistics.median, columns)
    report.measurements.append(
        {"memcpy": copy, "float32": float32, "float16": float16, "bfloat16": bfloat16}
    )
    report.row("float32: bytes a second of memcpy's", copy / float32, 1.1)
    report.row("float16: elements a second of float32's", float32 / float16, 1.4)
    report.row("bfloat16: elements a second of float32's", float32 / bfloat16, 1.0)
