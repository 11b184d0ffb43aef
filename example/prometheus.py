"""A Prometheus of one's own: where its program is, what it is told to do, and what it answers.

For `make run OBSERVE=1` and for the tests. It takes a free port, and a folder that it is given, and so is in nobody's
way: a service that a distribution's package may have started has port 9090, and goes on.
"""

import asyncio
import json
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

SAMPLE = Path(__file__).resolve().parent.parent / "grafana" / "prometheus.yml"
LISTENS = rb'msg="Listening on"[^\n]* address=(\S+)'
ANSWER_WITHIN = 5.0
LOOK_AGAIN_AFTER = 0.1
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class PrometheusMissing(Exception):
    """There is no such program here; the text says where it is had, for a person to read."""


class PrometheusRefused(Exception):
    """Prometheus did not answer what it was asked; the text is its own."""


class Sample(NamedTuple):
    """One value of an instant query, with its labels but for the name of its family."""

    labels: Mapping[str, str]
    value: float


def program(name: str = "prometheus") -> Path:
    """The path of `prometheus` or `promtool`. Raises PrometheusMissing."""
    path = shutil.which(name)
    if path is None:
        raise PrometheusMissing(f"there is no {name} here (Debian: apt-get install --no-install-recommends prometheus)")
    return Path(path)


def configuration(*targets: str, interval: str = "1s") -> str:
    """The sample configuration, but with these targets (HOST:PORT), looked at that often."""
    text = SAMPLE.read_text(encoding="utf-8")
    for ours, here in (
        ("127.0.0.1:9464", '", "'.join(targets)),
        ("alerts/*.yml", f"{SAMPLE.parent}/alerts/*.yml"),
        ("15s", interval),
    ):
        assert ours in text, f"{SAMPLE} has no {ours}"
        text = text.replace(ours, here)
    return text


def command(config: Path, storage: Path) -> list[str | Path]:
    """What starts it, on a free port of loopback that it tells in its log (`LISTENS`). Raises PrometheusMissing."""
    return [
        program(),
        f"--config.file={config}",
        f"--storage.tsdb.path={storage}",
        "--web.listen-address=127.0.0.1:0",
        "--enable-feature=exemplar-storage",
    ]


async def get(address: str, path: str, **parameters: str) -> Any:
    """What its API has under `data` for a path such as /api/v1/query. Raises PrometheusRefused, and OSError."""
    url = f"http://{address}{path}?{urllib.parse.urlencode(parameters)}"
    status, body = await asyncio.to_thread(_fetch, url)
    try:
        answer = json.loads(body)
    except ValueError:
        answer = {"error": f"status {status}"}
    if answer.get("status") != "success":
        raise PrometheusRefused(f"{path} {parameters}: {answer.get('error')}")
    return answer["data"]


async def query(address: str, expression: str) -> list[Sample]:
    """The values of an expression now, in an order of their labels; of no series, none. Raises as `get` does."""
    found = await get(address, "/api/v1/query", query=expression)
    if found["resultType"] == "scalar":
        return [Sample({}, float(found["result"][1]))]
    samples = [
        Sample({name: text for name, text in each["metric"].items() if name != "__name__"}, float(each["value"][1]))
        for each in found["result"]
    ]
    return sorted(samples, key=lambda sample: sorted(sample.labels.items()))


async def wait_for(address: str, expression: str) -> list[Sample]:
    """The values of an expression as soon as it has any, for as long as the caller waits. Raises as `get` does."""
    while True:
        found = await query(address, expression)
        if found:
            return found
        await asyncio.sleep(LOOK_AGAIN_AFTER)  # nothing tells when a scrape is done


def _fetch(url: str) -> tuple[int, bytes]:
    try:
        with _DIRECT.open(url, timeout=ANSWER_WITHIN) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read()
