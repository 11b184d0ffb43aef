"""The report of a gateway that has started, `StartupReport`: what to connect to, and where its files are.

`cli` logs it, or shows it as a banner on a terminal. It has no secret. A server's URL is shown as
scheme and host, a program by its first word. What came from references of the file is masked.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from taskgate import __version__
from taskgate.config import BindAddress, GatewayConfig
from taskgate.config.addresses import origin_of
from taskgate.wiring.authentication import resource_of


class MountReport(NamedTuple):
    """A mount: the name of its server, the URL for hosts, and the origin or program of the server."""

    upstream: str
    url: str
    server: str


class StartupReport(NamedTuple):
    """A started gateway.

    - `listen`, `admin`: HOST:PORT of the listeners for hosts and for operators
    - `mounts`: in the order of the configuration
    - `store`: the backend; `store_place`: its file or URL, None for one in memory
    - `data_directory`: None if nothing is in it
    - `audit`: the files of the audit log, `stdout` for standard output
    - `proxies`: those that lead to servers and issuers, without passwords
    """

    version: str
    listen: str
    admin: str
    mounts: tuple[MountReport, ...]
    store: str
    store_place: str | None
    data_directory: str | None
    audit: tuple[str, ...]
    proxies: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Return the lines of the banner, for people."""
        yield f"taskgate {self.version}"
        yield ""
        width = max(len(mount.url) for mount in self.mounts)
        for mount in self.mounts:
            yield f"  {mount.url:<{width}}  {mount.upstream}: {mount.server}"
        yield ""
        for name, text in (
            ("operators", f"http://{self.admin}"),
            ("store", self.store if self.store_place is None else f"{self.store}, {self.store_place}"),
            ("data directory", self.data_directory or "none"),
            ("audit log", ", ".join(self.audit) or "none"),
            *((("proxy", ", ".join(self.proxies)),) if self.proxies else ()),
        ):
            yield f"  {name:<15} {text}"


def startup_report(
    config: GatewayConfig,
    data_directory: Path | None,
    *,
    audit: tuple[str, ...],
    listen: tuple[str, int],
    admin: tuple[str, int],
) -> StartupReport:
    """Return the report of a gateway with these bound addresses; `audit` is as in `StartupReport`."""
    hide, place = config.references.hide, _store_place(config, data_directory)
    return StartupReport(
        version=__version__,
        listen=str(BindAddress(host=listen[0], port=listen[1])),
        admin=str(BindAddress(host=admin[0], port=admin[1])),
        mounts=tuple(
            MountReport(name, resource_of(config, listen[1], upstream.path), shown_server(config, name))
            for name, upstream in config.upstreams.items()
        ),
        store=config.store.backend,
        store_place=None if place is None else hide(place),
        data_directory=None if data_directory is None else str(data_directory),
        audit=tuple(map(hide, audit)),
        proxies=tuple(map(hide, config.to_egress().lines())),
    )


def shown_server(config: GatewayConfig, upstream: str) -> str:
    """Return the origin of a server's URL, or its program, without what came from references."""
    section = config.upstreams[upstream]
    # Arguments of a program may be secrets, and so may the path of a URL.
    return config.references.hide(section.command[0] if section.command else origin_of(section.url or ""))


def shown_time(moment: datetime | None) -> str | None:
    """Return a moment as documents for operators have it, in whole seconds."""
    return None if moment is None else moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _store_place(config: GatewayConfig, data_directory: Path | None) -> str | None:
    match config.store.backend:
        case "sqlite":
            return str(config.store.sqlite.to_options(data_directory).path)
        case "redis":
            redis = config.store.redis
            nodes = ", ".join(map(str, redis.sentinel.nodes))
            return nodes or redis.url
    return None
