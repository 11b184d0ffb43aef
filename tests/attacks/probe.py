"""Asks HOST:PORT for /livez, again and again until standard input ends; prints the longest silence and the answers.

A program of its own: what an attack keeps busy in the test's process does not count as silence of the gateway.
"""

import contextlib
import http.client
import sys
import threading
import time

PAUSE = 0.005  # seconds between an answer and the next question
PATIENCE = 30.0  # seconds


def probe(address: str, end: threading.Event) -> tuple[float, int]:
    """The longest time without an answer, in seconds, and the number of answers with status 200."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
    longest, answers, latest = 0.0, 0, time.monotonic()
    while not end.wait(PAUSE):
        try:
            connection.request("GET", "/livez")
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            continue
        if answer.status == 200:
            longest, latest, answers = max(longest, time.monotonic() - latest), time.monotonic(), answers + 1
    connection.close()
    return max(longest, time.monotonic() - latest), answers


def main() -> None:
    """Probe until standard input ends."""
    end = threading.Event()

    def wait() -> None:
        with contextlib.suppress(OSError):
            sys.stdin.buffer.read()
        end.set()

    threading.Thread(target=wait, daemon=True).start()
    print("probing", flush=True)
    longest, answers = probe(sys.argv[1], end)
    print(longest, answers, flush=True)


if __name__ == "__main__":
    main()
