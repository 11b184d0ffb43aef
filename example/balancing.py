"""What stands before several gateways: nginx where there is one, else a balancer of our own."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from addresses import Address
from balancer import LISTENS
from gateways import READY_WITHIN, RunFailed, url_of
from nginx import command, configuration
from processes import Child, running

BALANCER = Path(__file__).resolve().with_name("balancer.py")


@asynccontextmanager
async def balancing(
    listen: Address, backends: Sequence[Address], folder: Path, *, nginx: Path | None
) -> AsyncIterator[Child]:
    """A balancer at that address for the length of the block, ready when it begins; ours without nginx."""
    log = folder / "balancer.log"
    if nginx is None:
        ours = [sys.executable, BALANCER, str(listen), *map(str, backends)]
        async with running(ours, log=log) as child:
            await url_of(child, LISTENS, "the balancer")
            yield child
        return
    config = folder / "nginx.conf"
    config.write_text(configuration(folder, str(listen), [str(each) for each in backends]))
    async with running(command(nginx, folder, config), log=log) as child:
        await _until_it_listens(child, listen)
        yield child


async def _until_it_listens(child: Child, listen: Address) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while True:
        try:
            _, writer = await asyncio.open_connection(listen.host, listen.port)
        except OSError:
            if child.process.returncode is not None or time.monotonic() > deadline:
                raise RunFailed("nginx did not start") from None
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
