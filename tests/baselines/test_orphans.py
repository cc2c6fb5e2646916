"""Protects the machine: a worker whose parent is killed ends, and so does the server that it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKER = """
import sys
sys.path.insert(0, {root!r})
from baselines._shared.protocol import serve
from baselines._shared.server import Server
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
def handle(request, events):
    with Server([sys.executable, "-c", stubborn]) as server:
        events.stat("server", server._process.pid)
        events.ready()
        server._process.wait()
sys.exit(serve(handle))
"""
PARENT = """
import json, os, subprocess, sys
worker = subprocess.Popen([sys.executable, sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          start_new_session=True)
print(json.dumps(worker.pid), flush=True)
worker.stdin.write(sys.argv[2] + "\\n")
worker.stdin.flush()
for line in worker.stdout:
    print(line, end="", flush=True)
"""


def gone(pid, seconds=20):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has died")
@pytest.mark.parametrize("victim", ["parent", "worker"])
def test_nothing_outlives_a_killed_parent(tmp_path, request_table, victim):
    program = tmp_path / "worker.py"
    program.write_text(WORKER.format(root=str(ROOT)))
    command = [sys.executable, "-c", textwrap.dedent(PARENT), str(program), json.dumps(request_table)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    worker = json.loads(parent.stdout.readline())
    server = json.loads(parent.stdout.readline())["value"]
    try:
        os.kill(parent.pid if victim == "parent" else worker, signal.SIGKILL)
        assert gone(worker) and gone(server)
    finally:
        for pid in (worker, server):
            if not gone(pid, 0.1):
                os.kill(pid, signal.SIGKILL)
        parent.kill()
        parent.communicate()
