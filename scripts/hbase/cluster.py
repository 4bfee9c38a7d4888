"""A small HBase cluster on loopback: ZooKeeper, a master, two region servers, and Thrift.

    python scripts/hbase/cluster.py up | down | status | kill NAME | start NAME
    python scripts/hbase/cluster.py peer add PEER LOG_TABLE [PAUSE] | peer remove PEER | peer list
    python scripts/hbase/cluster.py java CLASS  (prints the command that runs a test's class)

`make hbase-up` and `make hbase-down` call it. Law: it ends only processes whose ids it has noted,
and only if they still are what it started. Jars and data lie outside the tree, in VIEWKEEP_HBASE
(default ~/.cache/viewkeep/hbase). Region servers have viewkeep's own jar (`endpoint.py`), which is
built when the cluster is started. The cluster takes five ports from VIEWKEEP_HBASE_PORT (default
22100) on; clusters with other ports have other data, so several may run side by side. Thrift, which
viewkeep speaks, is at the first port.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import endpoint

HERE = Path(__file__).resolve().parent
NAMES = ("thrift", "zookeeper", "master", "region1", "region2")  # in the order of their ports
STARTS = ("zookeeper", "master", "region1", "region2", "thrift")
HEAPS = {"zookeeper": 64, "master": 224, "region1": 384, "region2": 384, "thrift": 192}
PATIENCE = 180.0  # seconds for a cluster to answer

_MAINS = {
    "zookeeper": ["org.apache.hadoop.hbase.zookeeper.HQuorumPeer", "start"],
    "master": ["org.apache.hadoop.hbase.master.HMaster", "start"],
    "region": ["org.apache.hadoop.hbase.regionserver.HRegionServer"],
    "thrift": ["org.apache.hadoop.hbase.thrift2.ThriftServer", "start"],
}
# What HBase and its libraries reach into; Java 17 keeps it closed.
_OPENS = [
    "--add-modules=jdk.unsupported",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in (
            "java.lang",
            "java.lang.reflect",
            "java.nio",
            "java.util",
            "java.util.concurrent",
            "jdk.internal.ref",
            "sun.nio.ch",
        )
    ),
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.base/sun.net.dns=ALL-UNNAMED",
    "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
]
_LOGGING = """\
log4j.rootLogger=WARN,console
log4j.logger.viewkeep=INFO
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %-5p [%t] %c{2}: %.1000m%n
"""


class ClusterError(Exception):
    """Why the cluster cannot be what was asked, in a sentence for people."""


@dataclass(frozen=True)
class Cluster:
    """One cluster by its first port and the folder of all clusters."""

    home: Path
    port: int

    @staticmethod
    def of_environment() -> Cluster:
        home = os.environ.get("VIEWKEEP_HBASE") or Path.home() / ".cache/viewkeep/hbase"
        text = os.environ.get("VIEWKEEP_HBASE_PORT", "22100")
        if not text.isdigit() or not 1024 <= int(text) <= 65_000:
            raise ClusterError(f"VIEWKEEP_HBASE_PORT is {text!r}; choose a port from 1024 to 65000")
        return Cluster(Path(home).absolute(), int(text))

    @property
    def folder(self) -> Path:
        return self.home / f"cluster-{self.port}"

    @property
    def jars(self) -> Path:
        return self.home / "jars"

    def port_of(self, name: str) -> int:
        return self.port + NAMES.index(name)

    def up(self) -> None:
        """Start what does not run, and wait until all of it answers."""
        java = _java()
        self._get_jars()
        for part in ("conf", "logs", "pids", "data", "zookeeper", "tmp"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        (self.folder / "conf/hbase-site.xml").write_text(self._site())
        (self.folder / "conf/log4j.properties").write_text(_LOGGING)
        try:
            endpoint.build(self.jars, self.folder / "jar/viewkeep-hbase.jar")
        except endpoint.BuildError as error:
            raise ClusterError(str(error)) from None
        began, started = time.monotonic(), [name for name in STARTS if self.pid(name) is None]
        for name in started:
            self._free(name)
        for name in started:
            self.start(name, java)
        if started:
            say(f"started {', '.join(started)}; waiting until the cluster answers")
        self._wait(began)
        say(f"the cluster answers after {time.monotonic() - began:.0f} s")
        say(f"  Thrift     127.0.0.1:{self.port} (thrift2, binary protocol, unframed)")
        say(f"  ZooKeeper  127.0.0.1:{self.port_of('zookeeper')}")
        say(f"  logs       {self.folder / 'logs'}")
        say(f"  end it     {self._again('make hbase-down')}")

    def start(self, name: str, java: str | None = None) -> None:
        """Start one process, unless it runs."""
        if self.pid(name) is not None:
            return
        main = list(_MAINS["region" if name.startswith("region") else name])
        if name.startswith("region"):
            main += ["-D", f"hbase.regionserver.port={self.port_of(name)}", "start"]
        if name == "thrift":
            main += ["-b", "127.0.0.1", "-p", str(self.port), "--infoport", "-1"]
        command = self._command(java or _java(), name, HEAPS[name], main)
        with open(self.folder / "logs" / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.folder,
            )
        self._pid_file(name).write_text(str(process.pid))
        while self.pid(name) is None and process.poll() is None:
            time.sleep(0.001)  # it has no command line for an instant

    def peer(self, words: Sequence[str]) -> None:
        """Add, remove or list replication peers, as an administrator does in the HBase shell."""
        command = self._command(_java(), "peer", 96, ["viewkeep.hbase.Peers", *words])
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder)
        if done.returncode:
            raise ClusterError((done.stdout + done.stderr).strip())
        print(done.stdout, end="")

    def java(self, words: Sequence[str]) -> None:
        """Print, word by word, the command that runs a class of tests or benchmarks."""
        try:
            classes = endpoint.build_tests(self.jars, self.folder / "tests")
        except endpoint.BuildError as error:
            raise ClusterError(str(error)) from None
        print("\n".join(self._command(_java(), "test", 128, words, classes)))

    def _command(
        self, java: str, name: str, heap: int, main: Sequence[str], *more: Path
    ) -> list[str]:
        path = [self.folder / "conf", self.folder / "jar/*", self.jars / "*", *more]
        return [
            java,
            f"-Xmx{heap}m",
            "-XX:+UseSerialGC",
            f"-XX:TieredStopAtLevel={os.environ.get('VIEWKEEP_HBASE_TIER', '1')}",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.net.preferIPv4Stack=true",
            "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true",
            *_OPENS,
            f"-Dviewkeep.cluster={self.folder}",
            f"-Dviewkeep.process={name}",
            "-cp",
            os.pathsep.join(map(str, path)),
            *main,
        ]

    def down(self) -> None:
        """End all of its processes, and no other."""
        running = {name: pid for name in STARTS if (pid := self.pid(name)) is not None}
        if not running:
            say(f"no cluster of ours runs at port {self.port}")
        for group in (("thrift",), ("region1", "region2"), ("master",), ("zookeeper",)):
            pids = [running[name] for name in group if name in running]
            for pid in pids:
                _signal(pid, signal.SIGTERM)
            if not _gone(pids, 15):
                for pid in pids:
                    _signal(pid, signal.SIGKILL)
                _gone(pids, 10)
        for name in STARTS:
            self._pid_file(name).unlink(missing_ok=True)
        if running:
            say(f"ended {', '.join(running)}; data is kept in {self.folder}")

    def kill(self, name: str) -> None:
        """kill -9 of one process."""
        if (pid := self.pid(name)) is None:
            raise ClusterError(f"{name} does not run")
        _signal(pid, signal.SIGKILL)
        _gone([pid], 10)
        self._pid_file(name).unlink(missing_ok=True)

    def status(self) -> bool:
        """Print what runs; whether all of it does."""
        pids = {name: self.pid(name) for name in STARTS}
        for name, pid in pids.items():
            say(f"{name:10} 127.0.0.1:{self.port_of(name)}  " + (f"pid {pid}" if pid else "down"))
        return None not in pids.values()

    def pid(self, name: str) -> int | None:
        """The id of a process that runs; None if it does not."""
        try:
            pid = int(self._pid_file(name).read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        ours = {f"-Dviewkeep.cluster={self.folder}", f"-Dviewkeep.process={name}"}
        return pid if ours <= {os.fsdecode(word) for word in command} else None

    def _pid_file(self, name: str) -> Path:
        return self.folder / "pids" / name

    def _free(self, name: str) -> None:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self.port_of(name)))
            except OSError:
                raise ClusterError(
                    f"another program uses port {self.port_of(name)}, which {name} needs; "
                    "choose other ports by VIEWKEEP_HBASE_PORT"
                ) from None

    def _again(self, command: str) -> str:
        names = ("VIEWKEEP_HBASE", "VIEWKEEP_HBASE_PORT")
        given = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
        return " ".join([*given, command])

    def _get_jars(self) -> None:
        """Copy the jars into the cache, once; another process may be doing the same."""
        pom = HERE / "pom.xml"
        seen = self.jars / "pom.xml"
        if seen.exists() and seen.read_bytes() == pom.read_bytes():
            return
        say(f"getting the jars of HBase into {self.jars} (about 120 MB, once; minutes)")
        draft = self.home / f"jars.{os.getpid()}"
        draft.mkdir(parents=True)
        shutil.copy(pom, draft)
        try:
            _maven(
                "-f",
                str(draft / "pom.xml"),
                "dependency:copy-dependencies",
                "-DincludeScope=runtime",
                f"-DoutputDirectory={draft}",
            )
            if self.jars.exists():
                shutil.rmtree(self.jars)
            draft.rename(self.jars)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _wait(self, began: float) -> None:
        told = began
        while True:
            for name in STARTS:
                if self.pid(name) is None:
                    raise ClusterError(f"{name} has ended; it wrote:\n{self._tail(name)}")
            if answers(self.port):
                return
            now = time.monotonic()
            if now - began > PATIENCE:
                raise ClusterError(
                    f"the cluster does not answer after {PATIENCE:.0f} s; "
                    f"the master wrote:\n{self._tail('master')}"
                )
            if now - told >= 10:
                told = now
                say(f"  still starting after {now - began:.0f} s")
            time.sleep(0.25)

    def _tail(self, name: str) -> str:
        path = self.folder / "logs" / f"{name}.log"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return "\n".join(f"    {line[:200]}" for line in lines[-12:]) + f"\n(all of it: {path})"

    def _site(self) -> str:
        settings = {
            "hbase.cluster.distributed": "true",
            "hbase.rootdir": f"file://{self.folder / 'data'}",
            "hbase.tmp.dir": str(self.folder / "tmp"),
            # A local file system cannot promise that a synced log survives the machine's death.
            "hbase.unsafe.stream.capability.enforce": "false",
            "hbase.wal.provider": "filesystem",
            "hbase.zookeeper.quorum": "127.0.0.1",
            "hbase.zookeeper.property.clientPort": str(self.port_of("zookeeper")),
            "hbase.zookeeper.property.clientPortAddress": "127.0.0.1",
            "hbase.zookeeper.property.dataDir": str(self.folder / "zookeeper"),
            "hbase.zookeeper.property.admin.enableServer": "false",
            "hbase.zookeeper.property.tickTime": "2000",
            "hbase.zookeeper.property.minSessionTimeout": "2000",
            "zookeeper.session.timeout": "6000",
            "hbase.master.hostname": "localhost",
            "hbase.unsafe.regionserver.hostname": "localhost",
            "hbase.master.ipc.address": "127.0.0.1",
            "hbase.regionserver.ipc.address": "127.0.0.1",
            "hbase.master.port": str(self.port_of("master")),
            "hbase.master.info.port": "-1",
            "hbase.regionserver.info.port": "-1",
            "hbase.master.wait.on.regionservers.mintostart": "2",
            "hbase.master.wait.on.regionservers.timeout": "2000",
            "hbase.master.wait.on.regionservers.interval": "200",
            "hbase.regionserver.handler.count": "10",
            "hbase.client.retries.number": "10",
            "hbase.rpc.timeout": "20000",
            "hbase.balancer.period": "3000000",
            # A source that has read to the end of the log looks again after so many milliseconds.
            "replication.source.sleepforretries": "20",
            "replication.sleep.before.failover": "500",
            "hbase.thrift.server.socket.read.timeout": "600000",
        }
        lines = [
            f"  <property><name>{name}</name><value>{value}</value></property>"
            for name, value in settings.items()
        ]
        return "\n".join(['<?xml version="1.0"?>', "<configuration>", *lines, "</configuration>\n"])


def answers(port: int) -> bool:
    """Whether the Thrift server answers and the master behind it is ready.

    It asks for the namespaces, by hand, so that starting a cluster needs no Python package.
    """
    name = b"listNamespaceDescriptors"
    call = struct.pack(">II", 0x80010001, len(name)) + name + struct.pack(">IB", 0, 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(call)
            with connection.makefile("rb") as reply:
                head = reply.read(8 + len(name) + 4 + 3)
    except OSError:
        return False
    # A reply (2) whose only field is 0: the answer. Field 1 is an error.
    return head[:4] == struct.pack(">I", 0x80010002) and head[-3:] == b"\x0f\x00\x00"


def say(text: str) -> None:
    print(f"hbase: {text}", flush=True)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if java is None:
        raise ClusterError("Java is missing; install Java 17 or later, or set JAVA_HOME")
    return java


def _maven(*arguments: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ClusterError("Maven is missing, which gets the jars of HBase; install mvn")
    done = subprocess.run([maven, "-q", "-B", *arguments], capture_output=True, text=True)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise ClusterError(f"Maven failed:\n{last}")


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _gone(pids: Sequence[int], seconds: float) -> bool:
    """Wait until processes have ended; whether they have."""
    deadline = time.monotonic() + seconds
    while any(_runs(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="A small HBase cluster on loopback.")
    parser.add_argument(
        "command", choices=["up", "down", "status", "kill", "start", "peer", "java"]
    )
    parser.add_argument("words", nargs="*", metavar="NAME")
    given = parser.parse_args(arguments)
    if given.command in ("kill", "start") and (
        len(given.words) != 1 or given.words[0] not in STARTS
    ):
        parser.error(f"{given.command} needs the name of a process: {', '.join(STARTS)}")
    try:
        cluster = Cluster.of_environment()
        if given.command == "status":
            return 0 if cluster.status() else 1
        if given.command == "up":
            cluster.up()
        elif given.command == "down":
            cluster.down()
        elif given.command in ("peer", "java"):
            getattr(cluster, given.command)(given.words)
        else:
            getattr(cluster, given.command)(given.words[0])
    except ClusterError as error:
        print(f"hbase: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
