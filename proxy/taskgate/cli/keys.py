"""The work of `keys new` and `keys hash`: `print_new_key` and `print_hash`."""

import json
import re
import sys
from typing import Final

import click

from taskgate.auth.api_keys import is_long_enough, key_digest, new_key
from taskgate.clock import SystemEntropy

_NAME: Final = re.compile("[a-z0-9][a-z0-9_-]{0,63}")
_LONGEST: Final = 1024
_ENTRY: Final = """\
The key. It is shown this once, and stored nowhere; give it to the host:

  {key}

The entry of the configuration, under a name of your choice:

auth:
  mode: required
  api_keys:
    {name}:
      hash: {hash}
      subject: {name}
"""


def print_new_key(name: str | None) -> None:
    """Print a new key, and its entry of the configuration."""
    if name is not None and not _NAME.fullmatch(name):
        raise click.UsageError(
            "--name must be 1 to 64 small letters, digits, - and _, and begin with none of these two."
        )
    key = new_key(SystemEntropy())
    # In quotes, since YAML takes 123 and null for other things than texts.
    click.echo(_ENTRY.format(key=key, name=json.dumps(name or "NAME"), hash=_hash(key)), nl=False)


def print_hash() -> None:
    """Print the hash of the key in standard input."""
    key = sys.stdin.read(_LONGEST).strip()
    if not is_long_enough(key):
        raise click.UsageError(
            "Standard input must hold one API key: tgk_ and 22 to 128 random letters, digits, - and _. "
            "taskgate keys new makes one."
        )
    click.echo(_hash(key))


def _hash(key: str) -> str:
    return f"sha256:{key_digest(key)}"
