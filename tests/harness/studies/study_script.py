"""A study as its own process, for tests that interrupt it. Arguments: home folder, JSON table of the stand-ins."""

import json
import sys
from pathlib import Path

from study_samples import fake_command

from seqmoe.harness.studies.kinds import find_study
from seqmoe.harness.studies.progress import PlainProgress
from seqmoe.harness.studies.runner import run_study
from seqmoe.spec.paths import Home

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    home = Home(folder, folder, "clone")
    study = find_study(home, "small")
    try:
        command = fake_command(home, json.loads(sys.argv[2]))
        run_study(home, study, command=command, progress=PlainProgress(sys.stderr))
    except KeyboardInterrupt:
        sys.exit(130)
