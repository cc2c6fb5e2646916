"""A stand-in for the child process of a cell: tells its progress and gives numbers, or fails as it is told to.

Arguments: a JSON table {predictor or variant: behaviour, "log": file, "pause": seconds}, and a mark to be found by.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    plan = json.loads(sys.argv[1])
    request = json.loads(sys.stdin.readline())
    cell = request["cell"]
    with Path(plan["log"]).open("a", encoding="utf-8") as log:
        log.write(json.dumps({"pid": os.getpid(), **request}) + "\n")
    work = Path(request["work"])
    work.mkdir(parents=True, exist_ok=True)
    resumed = (work / "checkpoint").exists()
    (work / "checkpoint").write_text("begun")
    emit(event="progress", stage="training", minutes=0.1, tokens=1000, loss=1.5, recall=0.5)
    time.sleep(plan.get("pause", 0.0))
    behaviour = plan.get(cell["variant"]) or plan.get(cell["predictor"])
    if behaviour == "crash":
        sys.exit("the last words of /home/someone/place.py")
    if behaviour == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "unsupported":
        emit(event="error", kind="unsupported", reason="the traces have no early router")
        return
    if behaviour in ("hang", "stubborn"):
        if behaviour == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", sys.argv[2]])
        time.sleep(600)
    emit(event="result", observations={
        "evaluation": plan["evaluation"], "training": {"curve": [], "resumed": resumed},
        "cost": {"one_step_us": 1.0, "rollout_us": 2.0, "parameters": 3}, "traces": {"train": 9, "test": 1},
    })  # fmt: skip
    emit(event="done")


def emit(**event: object) -> None:
    print(json.dumps(event), flush=True)


if __name__ == "__main__":
    main()
