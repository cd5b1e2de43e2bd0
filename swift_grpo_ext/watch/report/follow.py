"""Shows runs while they go on: a page on the loopback interface that keeps itself fresh."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Sequence
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from swift_grpo_ext.errors import OutputFolderError, PortError
from swift_grpo_ext.watch.journal import EVENTS, FOLDER
from swift_grpo_ext.watch.logs import newest_version
from swift_grpo_ext.watch.report import as_utf8, page

HOST = "127.0.0.1"
_SOURCES = ("logging.jsonl", "completions.jsonl", f"{FOLDER}/{EVENTS}")


class LivePage:
    """The page of some runs, made anew when they have written something.

    Args:
        folders: Output folders. A run that has not logged a step yet is waited for.
        every: Seconds between two looks of the page.
        completions: How many of each run to show.
    """

    def __init__(self, folders: Sequence[str], *, every: float, completions: int) -> None:
        self._folders, self._every, self._completions = folders, every, completions
        self._lock = threading.Lock()
        self._tag = ""
        self._body = b""

    def now(self) -> tuple[str, bytes]:
        """Its tag, which changes with the runs, and its HTML."""
        with self._lock:
            tag = self._fingerprint()
            if tag != self._tag:
                self._body = as_utf8(self._made())
                self._tag = tag
            return self._tag, self._body

    def _made(self) -> str:
        try:
            return page(self._folders, completions=self._completions, follow_seconds=self._every)
        except OutputFolderError as error:
            return (
                f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="{self._every:g}">'
                f"<title>waiting</title><p>Waiting for the run: {escape(str(error))}"
            )

    def _fingerprint(self) -> str:
        marks: list[Any] = []
        for folder in self._folders:
            try:
                version = newest_version(folder)
            except OutputFolderError:
                marks.append(folder)
                continue
            paths = (version / name for name in _SOURCES)
            marks += [(str(path), *_size_and_time(path)) for path in paths]
        return f'"{hashlib.sha256(repr(marks).encode()).hexdigest()[:24]}"'


def serve(live: LivePage, port: int) -> ThreadingHTTPServer:
    """A server of the page on the loopback interface, bound but not running yet.

    Raises:
        PortError: The port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A foreign site that resolves its name to this address must not read the page.
            if self.headers.get("Host", "").rpartition(":")[0] not in (HOST, "localhost"):
                self.send_error(HTTPStatus.FORBIDDEN)
            elif self.path != "/":
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                self._answer(*live.now())

        def _answer(self, tag: str, body: bytes) -> None:
            same = self.headers.get("If-None-Match") == tag
            self.send_response(HTTPStatus.NOT_MODIFIED if same else HTTPStatus.OK)
            self.send_header("ETag", tag)
            self.send_header("Cache-Control", "no-cache")
            self.send_header("X-Content-Type-Options", "nosniff")
            if not same:
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if not same:
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing for each request."""

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise PortError(f"{error.strerror}", where=f"{HOST}:{port}", fix="give another --port") from None


def follow(folders: Sequence[str], *, port: int, every: float, completions: int) -> None:
    """Serve the page until Ctrl-C.

    Raises:
        PortError: The port is taken.
    """
    live = LivePage(folders, every=every, completions=completions)
    with serve(live, port) as server:
        try:
            print(f"http://{HOST}:{server.server_address[1]}/ (Ctrl-C ends it)", flush=True)
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print("ended", file=sys.stderr)


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        state = path.stat()
    except OSError:
        return 0, 0
    return state.st_size, state.st_mtime_ns
