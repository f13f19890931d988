"""All-reduces a set of gradients with Gloo: `-m contestants.gloo ADDRESS RANK SIZE`.

With a pack size the tensors lie in flat buckets, as those of torch's
DistributedDataParallel do, whose gradients are views of the buckets: nothing is
copied. The sums replace the tensors, so later steps sum sums.
"""

import sys

import torch
import torch.distributed as dist

from contestants.serve import PERIOD, elements_and_pack, serve


def buckets(elements, pack):
    """The elements of each flat bucket: consecutive tensors of `pack` bytes in all."""
    flat = []
    for count in elements:
        if flat and 4 * (flat[-1] + count) <= pack:
            flat[-1] += count
        else:
            flat.append(count)
    return flat


def main():
    address, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://{address}", rank=rank, world_size=size
    )

    def prepare(task):
        counts = buckets(*elements_and_pack(task))
        tensors = [(torch.arange(c) % PERIOD + rank).float() for c in counts]

        def step():
            for work in [dist.all_reduce(t, async_op=True) for t in tensors]:
                work.wait()

        step()
        for tensor in tensors:
            ranks = size * (size - 1) // 2
            expected = (torch.arange(len(tensor)) % PERIOD * size + ranks).float()
            if not torch.equal(tensor, expected):
                raise AssertionError("wrong sums")
        return step

    serve(prepare)


if __name__ == "__main__":
    main()
