"""A real headless browser, driven over its DevTools protocol through a pair of pipes."""

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

# Where tools/browser.py puts one if the machine has none.
OWN = Path(__file__).resolve().parents[3] / ".swift_grpo_ext/browser"
COMMANDS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_browser():
    return next(filter(None, map(shutil.which, (*COMMANDS, OWN / "chromium"))), None)


class Browser:
    """Chromium without a window. Asking it to open a page gives a `Page`."""

    def __init__(self, command, profile):
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        flags = "--headless=new --no-sandbox --disable-gpu --hide-scrollbars --remote-debugging-pipe --no-first-run"
        line = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'  # Chromium reads descriptor 3 and writes 4
        self._process = subprocess.Popen(
            ["bash", "-c", line, command, *flags.split(), f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._rest, self._number, self.events = b"", 0, []

    def call(self, method, session=None, **parameters):
        """One command of the protocol, and its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "navigated" in answer.get("error", {}).get("message", ""):
                    raise Navigated
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _read(self):
        while b"\0" not in self._rest:
            part = os.read(self._in, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, address, *, width=1280, height=900, dark=False):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, width, height)
        page.call("Page.enable")
        page.call("Runtime.enable")
        page.call("Log.enable")
        page._resize(height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        page.call("Page.bringToFront")  # tabs behind others are slowed down
        page.call("Page.navigate", url=str(address))
        page.wait("document.readyState === 'complete' && location.href !== 'about:blank'")
        return page

    def close(self):
        self.call("Browser.close")
        self._process.wait(10)
        os.close(self._out)
        os.close(self._in)


class Navigated(Exception):
    """The page was replaced while a script ran in it, as one that refreshes itself is."""


class Page:
    def __init__(self, browser, session, width, height):
        self._browser, self._session = browser, session
        self.width, self.height = width, height

    def call(self, method, **parameters):
        return self._browser.call(method, self._session, **parameters)

    def run(self, script):
        """The value of an expression in the page; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition, seconds=20):
        deadline = time.monotonic() + seconds
        while not self._holds(condition):
            assert time.monotonic() < deadline, f"never true: {condition}"
            time.sleep(0.05)

    def _holds(self, condition):
        try:
            return self.run(f"!!({condition})")
        except Navigated:
            return False

    def text(self, selector):
        """Of an element, also of one that is so far out of sight that it is not laid out."""
        return self.run(
            f"(node => node.innerText || node.textContent)(document.querySelector({json.dumps(selector)}))"
        )

    def type(self, selector, value):
        """Set a field as a user's typing would."""
        self.run(
            f"{{const f = document.querySelector({json.dumps(selector)}); f.value = {json.dumps(value)};"
            "f.dispatchEvent(new Event('input', {bubbles: true}))}"
        )

    def complaints(self):
        """What the page's scripts threw, and what its content security policy stopped."""
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded")
        return [
            event["params"]
            for event in self._browser.events
            if event.get("method") in kinds and event.get("sessionId") == self._session
        ]

    def screenshot(self, path, *, whole=True):
        if whole:  # what is out of sight is not painted, so all must be in sight
            self._resize(min(self.call("Page.getLayoutMetrics")["cssContentSize"]["height"], 12000))
        shot = self.call("Page.captureScreenshot", format="png")
        if whole:
            self._resize(self.height)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def _resize(self, height):
        size = {"width": self.width, "height": int(height), "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        frame = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        self.run(f"{frame}.then(() => {frame})")
