"""A sweep on a cluster as its own process, for a test that interrupts it: home, address, table of the fake workers."""

import json
import sys
from pathlib import Path

from harness_samples import FakeLauncher

from seqmoe.harness.executors.cluster.site import ClusterOptions
from seqmoe.harness.runner import run_suite
from seqmoe.spec.paths import Home

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    home = Home(folder, folder, "clone")
    launcher = FakeLauncher(home, json.loads(sys.argv[3]))
    try:
        run_suite(home, "demo", launcher=launcher, cluster=ClusterOptions(sys.argv[2], hardware="card"))
    except KeyboardInterrupt:
        sys.exit(130)
