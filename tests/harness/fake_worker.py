"""A worker for tests. Its argument is a JSON table: {system or cell key: behaviour}, "log": file, "pause": seconds."""

import json
import os
import signal
import subprocess
import sys
import time

SLEEPER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"

LAST_WORDS = {
    "device_memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
    "pinned_memory": "RuntimeError: CUDA error: out of memory in cudaHostAlloc",
}


def emit(**event):
    print(json.dumps(event), flush=True)


def answer(request, wrong=False, short=False, hidden=False, busy=False):
    now = time.perf_counter_ns
    for index, prompt in enumerate(request["prompts"]):
        emit(event="request", prompt=index, time_ns=now())
        for step in range(request["decode_tokens"] - (short and index == 0)):
            token = (sum(prompt) + step + (wrong and step == 2)) % 100
            emit(event="token", prompt=index, token=None if hidden else token, time_ns=now())
    emit(event="stat", name="hit_rate", value=0.5)
    if busy:
        emit(event="stat", name="overlap_ratio", value=0.9)
        emit(event="stat", name="overlap_ratio_achieved", value=0.47)
    emit(event="done")


def serve(request, plan):
    cell = request["cell"]
    behaviour = plan.get(cell["system"], "ok")
    if "log" in plan:
        with open(plan["log"], "a") as log:
            mark = os.environ.get("SEQMOE_MARK")
            log.write(json.dumps({"cell": cell, "pid": os.getpid(), "request": request, "mark": mark}) + "\n")
    emit(event="ready")
    time.sleep(plan.get("pause", 0))
    if behaviour == "crash":
        sys.exit("the last words of /home/somebody/secret/place.py")
    elif behaviour == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif behaviour == "memory":
        raise MemoryError
    elif behaviour in LAST_WORDS:
        sys.exit(LAST_WORDS[behaviour])
    elif behaviour == "garbage":
        print("Loading weights...", flush=True)
        time.sleep(600)
    elif behaviour == "protocol":
        emit(event="tokens", prompt=0)
        time.sleep(600)
    elif behaviour == "hang":
        time.sleep(600)
    elif behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen([sys.executable, "-c", SLEEPER, sys.argv[2]])
        emit(event="stat", name="child", value=1)
        time.sleep(600)
    elif behaviour == "endless":
        while True:
            emit(event="stat", name="still_busy", value=1)
    elif behaviour == "mute":
        os.close(1)
        time.sleep(600)
    elif behaviour in ("unsupported", "oom", "invalid", "not_installed"):
        emit(event="error", kind=behaviour, reason=f"said {behaviour}", hint="do something")
    else:
        answer(request, **{name: True for name in ("wrong", "short", "hidden", "busy") if name == behaviour})
        if behaviour == "talkative":
            emit(event="stat", name="too", value="late")


if __name__ == "__main__":
    table = json.loads(sys.argv[1])
    for line in sys.stdin:
        serve(json.loads(line), table)
    if table.get("lingers"):
        time.sleep(600)
