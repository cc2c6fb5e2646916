"""A sweep as its own process, for tests that interrupt it. Arguments: home folder, JSON table of the fake workers."""

import json
import sys
from pathlib import Path

from harness_samples import FakeLauncher

from seqmoe.harness.progress import PlainProgress
from seqmoe.harness.runner import run_suite
from seqmoe.spec.paths import Home

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    home = Home(folder, folder, "clone")
    try:
        run_suite(
            home, "demo", repeats=4, launcher=FakeLauncher(home, json.loads(sys.argv[2])),
            progress=PlainProgress(sys.stderr),
        )  # fmt: skip
    except KeyboardInterrupt:
        sys.exit(130)
