"""An nginx of one's own before several gateways: where its program is, what it is told. For `make run` and the tests.

It takes the address and the folder that it is given, and so is in nobody's way: a service that a distribution's package
may have started goes on.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

# What a balancer needs to be told: no stickiness, nothing held back of event streams; a request whose connection is
# refused goes to the next gateway. `max_fails=0`: one that restarts is tried again at once, which costs nothing here.
_CONFIGURATION = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {folder}/nginx-body;
  proxy_temp_path {folder}/nginx-proxy;
  fastcgi_temp_path {folder}/nginx-fastcgi;
  uwsgi_temp_path {folder}/nginx-uwsgi;
  scgi_temp_path {folder}/nginx-scgi;
  client_max_body_size 4m;
  upstream gateways {{
    {servers}
    keepalive 32;
  }}
  server {{
    listen {listen};
    location / {{
      proxy_pass http://gateways;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_buffering off;
      proxy_read_timeout 1h;
    }}
  }}
}}
"""


def program() -> Path | None:
    """The path of nginx; None where there is none."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    return None if found is None else Path(found)


def configuration(folder: Path, listen: str, backends: Sequence[str]) -> str:
    """What it is told, to listen on one address (HOST:PORT) for several; what it writes goes into the folder."""
    servers = "\n    ".join(f"server {each} max_fails=0;" for each in backends)
    return _CONFIGURATION.format(folder=folder, listen=listen, servers=servers)


def command(nginx: Path, folder: Path, config: Path) -> list[str | Path]:
    """What starts it, in the foreground; its log is its output."""
    return [nginx, "-p", folder, "-e", "stderr", "-c", config]
