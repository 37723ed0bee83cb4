"""Chromium without a window, driven through its DevTools protocol over two pipes: for pages that a test looks at."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
COMMANDS, ANSWERS = 3, 4  # the file descriptors that --remote-debugging-pipe reads and writes


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. events: all that Chromium told of by itself. Use it as a context manager."""

    def __init__(self, profile: Path) -> None:
        """profile: an empty folder for what Chromium writes."""
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()

        def connect() -> None:
            spare = [os.dup(to_read), os.dup(to_write)]  # neither can be one of those that are being replaced
            os.dup2(spare[0], COMMANDS)
            os.dup2(spare[1], ANSWERS)

        command = [str(find_browser()), "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}", "--no-first-run", "--hide-scrollbars", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(COMMANDS, ANSWERS),
            preexec_fn=connect,
        )
        os.close(to_read)
        os.close(to_write)
        self._waiting, self._session, self._last_id = b"", "", 0
        self.events: list[dict[str, Any]] = []
        target = next(t for t in self.send("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._write)  # Chromium ends with it
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command; raises AssertionError where Chromium refuses it."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        os.write(
            self._write, json.dumps(message | ({"sessionId": self._session} if self._session else {})).encode() + b"\0"
        )
        while (answer := self._next()).get("id") != self._last_id:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._waiting:
            data = os.read(self._read, 1 << 20)
            assert data, "Chromium has ended"
            self._waiting += data
        message, _, self._waiting = self._waiting.partition(b"\0")
        return json.loads(message)

    def open(self, page: Path, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Load a file, and wait until it is there."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.events.clear()
        self.send("Page.navigate", url=page.absolute().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression, a promise's when it is kept."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def faults(self) -> list[str]:
        """Exceptions, and what the browser logged as an error, such as what the page's policy forbade."""
        found = [e["params"]["exceptionDetails"] for e in self.events if e.get("method") == "Runtime.exceptionThrown"]
        logged = [e["params"]["entry"] for e in self.events if e.get("method") == "Log.entryAdded"]
        return [json.dumps(fault) for fault in (*found, *(entry for entry in logged if entry["level"] == "error"))]

    def requests(self) -> list[str]:
        """The addresses that were asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def picture(self) -> bytes:
        """The whole page as PNG."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.send("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def paper(self) -> bytes:
        """The page as it is printed: a PDF."""
        return base64.b64decode(self.send("Page.printToPDF", printBackground=False)["data"])
