import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from liken.cli.running import held_back


@pytest.fixture
def said() -> Iterator[tuple[str, list[bytes]]]:
    """A daemon's status page, and the body it answers with next."""
    bodies: list[bytes] = [b"{}"]

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(bodies[-1])

        def log_message(self, *_: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}", bodies
        server.shutdown()
        thread.join()


def test_devices_the_daemon_holds_back_are_found(said: tuple[str, list[bytes]]) -> None:
    listen, bodies = said
    offers = [{"name": "usb-2-1-1-0", "heldBack": True}, {"name": "usb-2-2-1-0", "heldBack": False}]
    bodies.append(json.dumps({"devices": [{"offers": offers}, {"offers": []}]}).encode())
    assert held_back(listen) == {"usb-2-1-1-0"}


@pytest.mark.parametrize("body", [b"{}", b"no json", b"[]", b'{"devices": [{"offers": [{}]}]}', b"\xff"])
def test_an_answer_that_is_no_status_counts_for_nothing(said: tuple[str, list[bytes]], body: bytes) -> None:
    listen, bodies = said
    bodies.append(body)
    assert held_back(listen) == frozenset()


def test_no_daemon_is_no_trouble() -> None:
    assert held_back("127.0.0.1:1") == frozenset()
    assert held_back("nonsense") == frozenset()
