"""``report --live``: the page of a run while it goes on, at an address of this machine alone."""

import html
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

from swift_grpo_ext.errors import OutputFolderError
from swift_grpo_ext.watch.journal import newest_version, read_logging

LOOPBACK = "127.0.0.1"
SECONDS = 10  # between two loads of a page whose run goes on
_WAITING = "<!doctype html><title>GRPO run</title><p>{}</p>"


@dataclass(frozen=True)
class Page:
    """What is shown, and whether it may change."""

    text: str
    goes_on: bool


class Pages:
    """The page of runs, made anew when one of them has logged something."""

    def __init__(self, folders: list[str], render: Callable[[], str]) -> None:
        self._folders = folders
        self._render = render
        self._stamp: tuple[tuple[str, int, int], ...] = ()
        self._page = Page("", goes_on=True)
        self._lock = Lock()

    def newest(self) -> Page:
        """The page as the runs are now; before the first step one that says what it waits for."""
        with self._lock:
            try:
                stamp = tuple(map(_stamp, self._folders))
                if stamp != self._stamp:
                    self._page = Page(self._render(), not all(map(has_ended, self._folders)))
                    self._stamp = stamp
            except OutputFolderError as error:
                return Page(_WAITING.format(html.escape(str(error))), goes_on=True)
            return self._page


def _stamp(folder: str) -> tuple[str, int, int]:
    """What changes when a run logs, or another one begins in the folder."""
    version = newest_version(folder)
    state = (version / "logging.jsonl").stat()
    return str(version), state.st_mtime_ns, state.st_size


def has_ended(folder: str | Path) -> bool:
    """Whether the newest run in a folder has logged its end; one that was killed has not."""
    return any("train_runtime" in record for record in read_logging(folder, damaged=[])[-1:])


class LiveServer(ThreadingHTTPServer):
    """Serves one page. It listens on this machine alone, and opens no file by a name that it is asked for.

    Args:
        pages: Makes the page.
        port: To listen on; 0 takes a free one.
    """

    daemon_threads = True

    def __init__(self, pages: Pages, port: int = 0) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.pages = pages

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{LOOPBACK}:{self.server_port}/"

    @property
    def hosts(self) -> set[str]:
        """Names under which a browser here may ask; others are a page elsewhere that points its name here
        (https://en.wikipedia.org/wiki/DNS_rebinding).
        """
        return {f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")}


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer

    def do_GET(self) -> None:
        """The page, and nothing else."""
        if self.headers.get("Host") not in self.server.hosts:
            self.send_error(403)
        elif self.path != "/":
            self.send_error(404)
        else:
            self._send(self.server.pages.newest())

    def _send(self, page: Page) -> None:
        body = page.text.encode("utf-8", errors="replace")
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if page.goes_on:
            self.send_header("Refresh", str(SECONDS))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not printed."""


def serve(folders: list[str], render: Callable[[], str], port: int, say: Callable[[str], None]) -> None:
    """Serve the page of runs until Ctrl-C.

    Raises:
        OutputFolderError: The port cannot be listened on.
    """
    try:
        server = LiveServer(Pages(folders, render), port)
    except OSError as error:
        what = f"cannot listen: {error.strerror}"
        raise OutputFolderError(what, where=f"{LOOPBACK}:{port}", fix="give another --port") from None
    with server:
        say(f"{server.address} (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("ended")
