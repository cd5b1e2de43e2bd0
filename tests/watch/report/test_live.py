"""The page of a run while it goes on: served on this machine alone, made anew when something is logged."""

import http.client
import json
import threading
from contextlib import contextmanager

import pytest

from swift_grpo_ext.errors import OutputFolderError
from swift_grpo_ext.watch.report import live, live_report
from swift_grpo_ext.watch.report.live import LiveServer, Pages, has_ended
from tests.watch.report.made_up_run import write_run


@contextmanager
def served(folder, render):
    server = LiveServer(Pages([str(folder)], render))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def get(server, path="/", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


@pytest.fixture
def going_on(tmp_path):
    """A run that has not logged its end."""
    folder = write_run(tmp_path / "run", [0.1] * 12)
    log = folder / "logging.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    return folder


def test_it_is_made_anew_when_something_is_logged_and_reloads_until_the_end(going_on):
    made = []

    def render():
        made.append(1)
        return f"page {len(made)}"

    with served(going_on, render) as server:
        answer, text = get(server)
        assert (answer.status, text, answer.headers["Refresh"]) == (200, "page 1", "10")
        assert get(server)[1] == "page 1"
        with open(going_on / "logging.jsonl", "a") as log:
            log.write(json.dumps({"train_runtime": 1.0}) + "\n")
        answer, text = get(server)
        assert (text, answer.headers["Refresh"]) == ("page 2", None)
    assert has_ended(going_on)


@pytest.mark.parametrize("path", ["/../../etc/passwd", "/logging.jsonl", "/%2e%2e/args.json", "/?x=1"])
def test_nothing_but_the_page_is_served(going_on, path):
    with served(going_on, lambda: "page") as server:
        assert get(server, path)[0].status == 404


def test_a_page_of_another_name_is_refused(going_on):
    with served(going_on, lambda: "page") as server:
        assert get(server, host="evil.example:80")[0].status == 403
        assert get(server, host=f"localhost:{server.server_port}")[0].status == 200


def test_it_listens_on_this_machine_alone(going_on):
    with served(going_on, lambda: "page") as server:
        assert server.server_address[0] == "127.0.0.1"
        assert server.address == f"http://127.0.0.1:{server.server_port}/"


def test_before_the_first_step_it_waits(tmp_path):
    (tmp_path / "<b>").mkdir()
    with served(tmp_path / "<b>", lambda: "page") as server:
        answer, text = get(server)
    assert "no run of ms-swift was found" in text
    assert "<b>" not in text
    assert answer.headers["Refresh"]


def test_a_port_that_is_taken_is_one_line(going_on):
    with (
        served(going_on, lambda: "page") as server,
        pytest.raises(OutputFolderError, match=r"cannot listen: .* give another --port"),
    ):
        live_report([str(going_on)], print, server.server_port)


def test_ctrl_c_ends_it(going_on, monkeypatch):
    said = []
    monkeypatch.setattr(
        live.LiveServer, "serve_forever", lambda server: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    live_report([str(going_on)], said.append)
    assert said[0].startswith("http://127.0.0.1:")
    assert said[-1] == "ended"
