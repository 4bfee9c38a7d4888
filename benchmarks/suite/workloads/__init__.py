"""The workloads, in the order in which they run; the optional ones only when named."""

from __future__ import annotations

from suite.contract import Workload
from suite.workloads.freshness import Freshness
from suite.workloads.growth import Growth
from suite.workloads.hbase import Hbase
from suite.workloads.partial import Partial
from suite.workloads.scale import Scale
from suite.workloads.scripts import Reads, Wire
from suite.workloads.site import Site
from suite.workloads.skew import Skew
from suite.workloads.soak import Soak
from suite.workloads.start import Start
from suite.workloads.tpch import Tpch
from suite.workloads.vms import Vms
from suite.workloads.vote import Vote

WORKLOADS: tuple[Workload, ...] = (
    Vote(),
    Vms(),
    Tpch(),
    Growth(),
    Partial(),
    Site(),
    Skew(),
    Freshness(),
    Start(),
    Scale(),
    Reads(),
    Wire(),
)
OPTIONAL: tuple[Workload, ...] = (Soak(), Hbase())
