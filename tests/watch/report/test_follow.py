"""The server of ``report --follow``: loopback only, one page, made anew when the run has written something."""

import http.client
import signal
import subprocess
import sys
from threading import Thread

import pytest

from swift_grpo_ext.errors import PortError
from swift_grpo_ext.watch.report.follow import LivePage, serve
from tests.watch.report.made_up_run import write_run


@pytest.fixture
def ask(tmp_path):
    write_run(tmp_path, [0.5] * 3)
    server = serve(LivePage([str(tmp_path)], every=9, completions=10), 0)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()

    def get(path="/", **headers):
        connection = http.client.HTTPConnection(*server.server_address, timeout=30)
        connection.request(
            "GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer, body

    yield get
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_page_is_made_anew_only_when_the_run_wrote_something(ask, tmp_path):
    answer, body = ask()
    tag = answer.headers["ETag"]
    assert "connect-src 'self'" in body
    assert 'data-follow="9"' in body
    assert ask(If_None_Match=tag)[0].status == 304
    write_run(tmp_path, [0.5] * 4)
    again, _ = ask(If_None_Match=tag)
    assert again.status == 200
    assert again.headers["ETag"] != tag


def test_nothing_else_is_served_and_no_other_name_is_answered(ask):
    assert ask("/logging.jsonl")[0].status == 404
    assert ask("/../../etc/passwd")[0].status == 404
    assert ask(Host="evil.example:80")[0].status == 403


def test_a_port_that_is_taken_is_told(tmp_path):
    with serve(LivePage([], every=1, completions=1), 0) as server:
        assert server.server_address[0] == "127.0.0.1"
        with pytest.raises(PortError, match="--port"):
            serve(LivePage([], every=1, completions=1), server.server_address[1])


def test_ctrl_c_ends_the_command(tmp_path):
    write_run(tmp_path, [0.5] * 3)
    command = [sys.executable, "-m", "swift_grpo_ext.cli", "report", str(tmp_path), "--follow", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert errors == "ended\n"
