"""A worker of a Horovod job with Gloo, without its launcher."""

import os
import threading


def init():
    """Starts Horovod as HOROVOD_RANK of HOROVOD_SIZE; returns its TensorFlow module.

    Rank 0 has the rendezvous, at HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT.
    """
    import horovod.tensorflow as hvd

    if os.environ["HOROVOD_RANK"] == "0":
        _serve_rendezvous()
    hvd.init()
    return hvd


def _serve_rendezvous():
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    size = int(os.environ["HOROVOD_SIZE"])
    port = int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    server = RendezvousHTTPServer(("", port), RendezvousHandler, 0)
    hosts = parse_hosts(",".join(f"host{i}:1" for i in range(size)))
    server.init(get_host_assignments(hosts, size))
    threading.Thread(target=server.serve_forever, daemon=True).start()
