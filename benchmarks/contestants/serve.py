"""What the workers share. Nothing but Python's own modules: gloo.py has no others."""

import sys

# Elements are small integers, so that sums are exact.
PERIOD = 1021


def serve(prepare):
    """Answers "STEPS TASK" on standard input with "done", until the input ends.

    Args:
        prepare: Called with a new task; returns what does one step of it.
    """
    print("ready", flush=True)
    prepared = {}
    for line in sys.stdin:
        steps, _, task = line.strip().partition(" ")
        if task not in prepared:
            # A set may be asked for in two packings in turns; more is not kept.
            for old in list(prepared)[:-1]:
                del prepared[old]
            prepared[task] = prepare(task)
        for _ in range(int(steps)):
            prepared[task]()
        print("done", flush=True)


def elements_and_pack(task):
    """Reads "SIZES PACK": the elements of each float32 tensor, and bytes a pack."""
    sizes, pack = task.split()
    return [int(size) // 4 for size in sizes.split(",")], int(pack)
