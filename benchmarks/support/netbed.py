"""Hosts with links of a given rate, on one Linux machine.

Every host is a network namespace with one interface, eth0, joined by a veth pair to
a bridge in a namespace of its own (the switch). A token bucket (`tc tbf`) on each end
of the pair limits the two directions independently, so a link is full duplex. Nothing
is added to the machine's own namespace, but that processes may choose cubic there, if
they could not before. A host has a name, an /etc/hosts and a
/dev/shm of its own. Leaving the context ends every process in the hosts and removes
them, also after an error, SIGTERM or SIGHUP.

Needs root, iproute2 and the kernel's veth, bridge and tbf; `Loopback` needs nothing
and limits nothing.
"""

import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from tf_byteps.launch import free_ports

MTU = 1500
# What a byte of TCP payload costs on the wire: Ethernet, IPv4 and TCP headers with
# timestamps are 66 bytes for each 1448 of payload.
GOODPUT = (MTU - 52) / (MTU + 14)

_NETWORK = "10.231.0"  # /24, exists inside the namespaces only
# Bytes that wait at most on either end of a link; what does not fit is dropped, as a
# switch does. 32 flows that meet at a host have a segment of 64 KiB there each.
_QUEUE = 2 << 20
_CONGESTION_CONTROL = "cubic"
_FIRST_PORT = 7000
_PREFIX = "netbed-"
# A tmpfs for each bed: the hosts file, and a folder for each host's /dev/shm.
_FILES = pathlib.Path("/run/netbed")
_ENTER = """
echo "$1" >/proc/sys/kernel/hostname &&
mount --bind "$2/shm-$1" /dev/shm && mount --bind "$2/hosts" /etc/hosts &&
shift 2 && exec "$@"
"""
_serial = itertools.count()


def make_bed(hosts, rate):
    """A NetBed with links of `rate` Mbit/s where that is possible, else a Loopback."""
    possible = os.geteuid() == 0 and shutil.which("ip") and shutil.which("tc")
    return NetBed(hosts, rate) if possible else Loopback(hosts)


class Loopback:
    """Hosts that are all this machine."""

    rate = None
    interface = "lo"

    def __init__(self, hosts):
        self._hosts = hosts
        self._ports = set()

    def __len__(self):
        return self._hosts

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def new_address(self, host):
        """An "address:port" of the host that nobody uses."""
        # It stays free until somebody listens there, and so may come twice.
        port = None
        while port is None or port in self._ports:
            (port,) = free_ports(1)
        self._ports.add(port)
        return f"127.0.0.1:{port}"

    def popen(self, host, command, **options):
        """Starts command (a list) on the host, as subprocess.Popen would."""
        return subprocess.Popen(list(map(str, command)), **options)

    def drops(self):
        """Packets that the limits of all links have dropped so far."""
        return 0

    def sent(self, host):
        """Bytes that the host's link has sent so far."""
        return 0


class NetBed:
    """Hosts on a switch.

    rate: Mbit/s of every host's link and direction, or a list: of each host's.
    """

    interface = "eth0"

    def __init__(self, hosts, rate):
        self._hosts = hosts
        self.rate = rate
        self.name = f"{_PREFIX}{os.getpid()}-{next(_serial)}"
        self._switch = f"{self.name}-sw"
        self._ports = itertools.count(_FIRST_PORT)
        self._old_handlers = {}

    def __len__(self):
        return self._hosts

    def __enter__(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._old_handlers[number] = signal.signal(
                number, lambda n, _: sys.exit(128 + n)
            )
        try:
            _remove_left_over()
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        # A second signal must not cut the tear-down short.
        for number in self._old_handlers:
            signal.signal(number, signal.SIG_IGN)
        _remove_bed(self.name)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        self._old_handlers.clear()

    def new_address(self, host):
        return f"{_address(host)}:{next(self._ports)}"

    def popen(self, host, command, **options):
        # `ip netns exec` gives each command a mount namespace of its own; all of
        # these replace themselves, so the process is the command in the end.
        enter = ["ip", "netns", "exec", self._namespace(host), "unshare", "--uts"]
        enter += ["sh", "-c", _ENTER, "sh", f"host{host}", str(_FILES / self.name)]
        return subprocess.Popen([*enter, *map(str, command)], **options)

    def drops(self):
        return sum(
            _drops(self._namespace(host), "eth0") + _drops(self._switch, f"port{host}")
            for host in range(len(self))
        )

    def sent(self, host):
        file = "/sys/class/net/eth0/statistics/tx_bytes"
        command = ("ip", "netns", "exec", self._namespace(host), "cat", file)
        return int(subprocess.check_output(command))

    def _namespace(self, host):
        return f"{self.name}-h{host}"

    def _build(self):
        files = _FILES / self.name
        files.mkdir(parents=True)
        _check("mount", "-t", "tmpfs", "netbed", files)
        names = [f"{_address(host)} host{host}" for host in range(len(self))]
        (files / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
        _check("ip", "netns", "add", self._switch)
        self._in_switch("link add br0 type bridge stp_state 0")
        self._in_switch("link set br0 up")
        _allow_congestion_control()
        for host in range(len(self)):
            (files / f"shm-host{host}").mkdir()
            self._add_host(host)

    def _add_host(self, host):
        namespace, port = self._namespace(host), f"port{host}"
        _check("ip", "netns", "add", namespace)
        self._in_switch(
            f"link add {port} mtu {MTU} type veth "
            f"peer name eth0 netns {namespace} mtu {MTU}"
        )
        self._in_switch(f"link set {port} master br0 up")
        for setting in (
            "link set lo up",
            f"address add {_address(host)}/24 dev eth0",
            "link set eth0 up",
        ):
            _check("ip", "-n", namespace, *setting.split())
        # Each new connection starts from scratch, so that runs do not depend on the
        # ones before them; and in the way that is Linux's own, so that they do not
        # depend on what this machine was set to. A container may not choose that.
        _set(namespace, "tcp_no_metrics_save=1")
        with contextlib.suppress(RuntimeError):
            _set(namespace, f"tcp_congestion_control={_CONGESTION_CONTROL}")
        # The bucket must hold one 64 KiB segment with its headers, and what passes in
        # the 1 ms that a timer may be late on a busy machine.
        rate = self.rate[host] if isinstance(self.rate, list) else self.rate
        burst = max(80_000, int(rate * 1e6 / 8 / 1000))
        limit = f"root tbf rate {int(rate * 1000)}kbit burst {burst}"
        for where, device in ((namespace, "eth0"), (self._switch, port)):
            add = f"qdisc add dev {device} {limit} limit {_QUEUE}"
            _check("tc", "-n", where, *add.split())

    def _in_switch(self, arguments):
        _check("ip", "-n", self._switch, *arguments.split())


def _address(host):
    return f"{_NETWORK}.{host + 1}"


def _allow_congestion_control():
    """Lets every process choose it: a namespace has none that they may not choose."""
    file = pathlib.Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
    with contextlib.suppress(OSError):
        allowed = file.read_text().split()
        if _CONGESTION_CONTROL not in allowed:
            file.write_text(" ".join([*allowed, _CONGESTION_CONTROL]))


def _set(namespace, setting):
    _check("ip", "netns", "exec", namespace, "sysctl", "-qw", f"net.ipv4.{setting}")


def _remove_left_over():
    """Removes the beds whose process is gone."""
    beds = {
        name.rsplit("-", 1)[0] for name in _namespaces() if name.startswith(_PREFIX)
    }
    if _FILES.exists():
        beds |= {path.name for path in _FILES.iterdir()}
    for bed in beds:
        pid = bed.removeprefix(_PREFIX).split("-")[0]
        if not pathlib.Path(f"/proc/{pid}").exists():
            _remove_bed(bed)


def _remove_bed(bed):
    namespaces = [name for name in _namespaces() if name.rsplit("-", 1)[0] == bed]
    for number, patience in ((signal.SIGTERM, 2), (signal.SIGKILL, 5)):
        _end_processes(namespaces, number, patience)
    for namespace in namespaces:
        subprocess.run(["ip", "netns", "del", namespace], check=False)
    files = _FILES / bed
    if files.is_mount():
        subprocess.run(["umount", str(files)], check=False)
    if files.exists():
        files.rmdir()


def _end_processes(namespaces, number, patience):
    """Signals every process in the namespaces until none is left or time is up."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        pids = [
            int(pid)
            for namespace in namespaces
            for pid in _check("ip", "netns", "pids", namespace).split()
            if not _is_zombie(pid)
        ]
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(0.05)


def _is_zombie(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] in "ZX"


def _namespaces():
    listed = _check("ip", "netns", "list").splitlines()
    return [line.split()[0] for line in listed if line.strip()]


def _drops(namespace, device):
    shown = _check("tc", "-n", namespace, "-s", "-j", "qdisc", "show", "dev", device)
    return sum(qdisc.get("drops", 0) for qdisc in json.loads(shown))


def _check(*command):
    done = subprocess.run(
        list(map(str, command)), text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout
