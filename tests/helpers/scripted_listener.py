"""An HTTP server in a thread that answers as a test says, in place of a gateway that a command asks."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    verb: str
    path: str
    headers: Mapping[str, str]
    body: bytes


Answered = tuple[int, Any] | tuple[int, Any, Mapping[str, str]]
"""Status and document, with headers if there are any; bytes for what is no JSON, and an iterator of them for a
stream."""


@dataclass(slots=True)
class ScriptedListener:
    """Where it listens, and what it was asked."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)


@contextmanager
def scripted_listener(answer: Callable[[Asked], Answered]) -> Iterator[ScriptedListener]:
    """A server for the length of a block; `answer` is called in its threads."""
    listener = ScriptedListener()

    class Handler(BaseHTTPRequestHandler):
        """One connection."""

        def serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked = Asked(self.command, self.path, dict(self.headers.items()), body)
            listener.asked.append(asked)
            status, document, *headers = answer(asked)
            self.send_response(status)
            for name, value in (headers[0] if headers else {}).items():
                self.send_header(name, value)
            if isinstance(document, Iterator):
                self.end_headers()
                with suppress(ConnectionError):
                    for part in document:
                        self.wfile.write(part)
                return
            payload = document if isinstance(document, bytes) else orjson.dumps(document)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_POST = do_DELETE = serve  # noqa: N815 - names that the base class looks for

        def log_message(self, format: str, *args: Any) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield listener
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
