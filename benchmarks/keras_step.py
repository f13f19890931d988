"""Whole Keras training steps, against MultiWorkerMirroredStrategy and Horovod.

The same custom loop under both (`fit` does not run with Keras 3 there), and the same
processes without communication. `exposed` is what a step takes longer than without.
Of some steps in one function each layer waits for its own update only, as in Keras with
`steps_per_execution`.
"""

import contextlib

from support import jobs
from support.netbed import GOODPUT, make_bed

N, K, RATE = 4, 4, 500
TOGETHER = 4  # steps in one function
GOALS = {"vgg": 1.7, "resnet": None, "transformer": 1.3}
# What a worker receives of the others' rows of the transformer's Embedding: 64 samples
# of 50 tokens each, with an index. Their gradient is the last of the backward pass, so
# nothing is left to hide this behind.
_ROWS_BYTES = (N - 1) * 64 * 50 * (256 * 4 + 8)


def add_arguments(parser):
    parser.add_argument("--models", nargs="+", choices=GOALS, default=list(GOALS))
    parser.add_argument("--rounds", type=int, default=3)


def run(options, report):
    rounds = 2 if options.quick else options.rounds
    with make_bed(N + K, RATE) as bed, contextlib.ExitStack() as stack:
        if not bed.rate:
            report.leave_out("links of a given rate: they need root and iproute2")
        started = {
            kind: stack.enter_context(
                jobs.tensorflow(bed, N, k, "contestants.keras_step", kind)
            )
            for kind, k in (("alone", 0), ("mwms", 0), ("tf_byteps", K))
        }
        if jobs.HOROVOD.exists():
            script = ("contestants.keras_step", "horovod")
            started["horovod"] = stack.enter_context(jobs.horovod(bed, N, *script))
        else:
            report.leave_out("Horovod: it is not installed; `make bench` does that")
        for model in options.models:
            contestants = {kind: (job, model) for kind, job in started.items()}
            contestants["together"] = started["tf_byteps"], f"{model}*{TOGETHER}"
            measured = jobs.compare(contestants, 1, rounds)
            together = measured.pop("together").seconds / TOGETHER
            for kind, m in measured.items():
                report.measurements.append(
                    {
                        "n": N,
                        "k": K,
                        "rate": bed.rate,
                        "model": model,
                        "contestant": kind,
                        "seconds": m.seconds,
                        "cpu_seconds": m.cpu_seconds,
                    }
                )
                print(f"    {model:12} {kind:10} {m.seconds:7.3f} s", flush=True)
            seconds = {kind: m.seconds for kind, m in measured.items()}
            alone, mwms, byteps = map(seconds.get, ("alone", "mwms", "tf_byteps"))
            report.row(f"{model}: faster than MWMS", mwms / byteps, GOALS[model])
            if "horovod" in seconds:
                goal = 1.3 if model == "vgg" else None
                ratio = seconds["horovod"] / byteps
                report.row(f"{model}: faster than Horovod", ratio, goal)
            if model == "transformer" and bed.rate:
                rows = _ROWS_BYTES / (RATE * 1e6 / 8 * GOODPUT)
                what = "the most that links allow, with the step alone and all rows"
                report.row(f"{model}: {what}", mwms / (alone + rows))
                before = bed.sent(0)
                started["tf_byteps"].run(model, 1)
                what = "MB that a worker sends a step; its Embedding has 43"
                report.row(f"{model}: {what}", (bed.sent(0) - before) / 1e6)
            what = f"time of a step, {TOGETHER} in one function, of one alone"
            report.row(f"{model}: {what}", together / byteps)
            report.row(f"{model}: seconds of communication exposed", byteps - alone)
            report.row(f"{model}: the same of MWMS", mwms - alone)
