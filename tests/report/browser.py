"""A headless Chromium, driven through its own pipe: the DevTools protocol without any package."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MISSING = f"no Chromium here: none of {', '.join(NAMES)} is on the PATH"
# Others' load makes a browser slow; nothing here is timed.
_SECONDS = 120.0
# Chromium reads commands from descriptor 3 and writes answers to 4; the pipes' own numbers may be these.
_WIRE = (
    "import fcntl, os, sys; "
    "r, w = (fcntl.fcntl(int(a), fcntl.F_DUPFD, 10) for a in sys.argv[1:3]); "
    "os.dup2(r, 3); os.dup2(w, 4); os.execvp(sys.argv[3], sys.argv[3:])"
)


def find_browser() -> str | None:
    """The path of an installed Chromium."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Page:
    """One page: what it asked for, and what its console said of errors and warnings."""

    browser: Browser
    session: str
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def open(self, path: Path, width: int = 1280, height: int = 900, scheme: str = "light", media: str = "") -> None:
        """Load a file in a window of that size, with that colour scheme, and wait until it is there."""
        self._send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._send("Emulation.setEmulatedMedia", media=media, features=features)
        self.browser.loaded = False
        self._send("Page.navigate", url=path.resolve().as_uri())
        self.browser.wait(lambda: self.browser.loaded)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self._send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def picture(self, whole: bool = False) -> bytes:
        """A screenshot as PNG, of the window or of the whole page."""
        answer = self._send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    def _send(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.send(method, self.session, **params)


class Browser:
    """The process and its pipe; one page at a time."""

    def __init__(self, executable: str, profile: Path) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                   "--no-first-run", f"--user-data-dir={profile}", "--remote-debugging-pipe"]  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WIRE, str(theirs_in), str(theirs_out), executable, *options],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._answers: dict[int, dict[str, Any]] = {}
        self._number = 0
        self._page: Page | None = None
        self.loaded = False

    def page(self) -> Page:
        """An empty page that notes requests and complaints."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable", session)
        return self._page

    def send(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        number = self._number
        self.wait(lambda: number in self._answers)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def wait(self, done: Any) -> None:
        """Read what the browser says until ``done()``."""
        last = time.monotonic() + _SECONDS
        while not done():
            ready, _, _ = select.select([self._in], [], [], max(0.0, last - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the browser said nothing for {_SECONDS:.0f} s")
            piece = os.read(self._in, 1 << 20)
            if not piece:
                raise AssertionError(f"the browser ended with code {self._process.wait(10)}")
            self._buffer += piece
            *messages, self._buffer = self._buffer.split(b"\0")
            for message in messages:
                self._take(json.loads(message))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers[message["id"]] = message
            return
        method, params = message["method"], message.get("params", {})
        self.loaded |= method == "Page.loadEventFired"
        if self._page is None:
            return
        if method == "Network.requestWillBeSent":
            self._page.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self._page.complaints.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self._page.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self._page.complaints.append(str(params["entry"]))

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError, AssertionError, TimeoutError):
            self.send("Browser.close")
        os.close(self._out)
        os.close(self._in)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()


@contextlib.contextmanager
def opened(executable: str) -> Iterator[Browser]:
    """A browser with a profile of its own, for the time of a ``with`` block."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(executable, Path(profile))
        try:
            yield browser
        finally:
            browser.close()
