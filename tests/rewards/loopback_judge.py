"""A judge behind a real HTTP server on the loopback interface, in the format of OpenAI's chat API."""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    request_queue_size = 64  # with Python's 5, some of many connections at once wait a second


class LoopbackJudge:
    """Answers each request with what `reply` makes of it: a status and a body, as a context manager.

    Args:
        reply: Takes the number that the prompt asks to be repeated, and the request's JSON; returns
            (status, body), or (status, body, headers).
        delay: Seconds before each reply.
    """

    def __init__(self, reply, delay=0.0):
        self.requests = []
        self.headers = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        judge = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with judge._lock:
                    judge.requests.append((self.path, request))
                    judge.headers.append({name.title(): value for name, value in self.headers.items()})
                    judge._at_once += 1
                    judge.most_at_once = max(judge.most_at_once, judge._at_once)
                time.sleep(delay)
                with judge._lock:
                    judge._at_once -= 1
                status, body, *headers = reply(number_in(request), request)
                parts = [part.encode() for part in ([body] if isinstance(body, str) else body)]
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(sum(map(len, parts))))
                    for name, value in dict(*headers).items():
                        self.send_header(name, value)
                    self.end_headers()
                    for part in parts:
                        self.wfile.write(part)
                        self.wfile.flush()
                        time.sleep(0.05 * (len(parts) > 1))
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the client has given up

            def log_message(self, *arguments):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.server.server_close()


def number_in(request):
    return re.search(r"BEGIN ([0-9a-f]{16})", request["messages"][0]["content"])[1]


def text_in(request):
    """The user's message, without images."""
    content = request["messages"][1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


def chat(text, **usage):
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}], "usage": usage})


def scored(number, score):
    return chat(f'It is fair.\n{{"number": "{number}", "score": {json.dumps(score)}}}')


def always(score):
    return lambda number, request: (200, scored(number, score))
