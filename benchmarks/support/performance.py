"""docs/performance.md and the plots, made from the last run of each benchmark."""


def plot():
    pass


def write():
    pass
