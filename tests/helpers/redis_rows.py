"""What lies in Redis for the tasks that are there: `expect_indexes` holds every index to the rows, both ways.

It is written from the page in rows.py, and knows no script: what a script forgets to write, or to remove, shows.
"""

from collections import Counter, defaultdict
from typing import Any

from helpers.store_server import SharedServer
from taskgate.stores.redis.options import RedisOptions

KEPT_FOR = 7 * 24 * 3600 * 1000
"""Milliseconds that each key stays beyond what is in it."""

_DUMP = """
local found = {}
for number, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local kind, value = redis.call('TYPE', key).ok, nil
  if kind == 'hash' then value = redis.call('HGETALL', key)
  elseif kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  else value = redis.call('GET', key) end
  found[number] = {key, kind, redis.call('PTTL', key), value}
end
return found
"""

Rows = dict[str, dict[str, str]]


def expect_indexes(server: SharedServer, options: RedisOptions) -> Rows:
    """Expect every index to have what the rows say and nothing else, and every key to outlive it; the rows."""
    rows: Rows = {}
    there: dict[str, Any] = {}
    root = f"{options.key_prefix}{{taskgate}}:"
    for key, kind, left, value in server.ask("EVAL", _DUMP, 0, f"{options.key_prefix}*"):
        name = key.decode().removeprefix(root)
        assert left > KEPT_FOR - 60_000, f"{name} is gone in {left} ms"
        if name.startswith("task:"):
            fields = [each.decode(errors="replace") for each in value]
            rows[name.removeprefix("task:")] = dict(zip(fields[::2], fields[1::2], strict=True))
        elif kind == b"zset":
            there[name] = {each.decode(): float(score) for each, score in zip(value[::2], value[1::2], strict=True)}
        else:
            there[name] = value.decode()
    assert there == _wanted(rows)
    return rows


def _wanted(rows: Rows) -> dict[str, Any]:
    wanted: dict[str, Any] = defaultdict(dict)
    kept: Counter[str] = Counter()
    for id, row in rows.items():
        owner, state, shares = row["owner"], row["state"], row["shares"].split()
        wanted[f"created:{state}:{owner}"][row["created"] + id] = 0.0
        wanted[f"updated:{state}:{owner}"][row["updated"] + id] = 0.0
        wanted[f"all:{state}"][id] = float(row["expires"])
        if row["open"] == "1":
            wanted["open"][id] = float(row["until"])
            for share in shares:
                wanted[f"unfinished:{share}"][id] = float(row["expires"])
        bodies = sum(len(row.get(field, "").encode()) for field in ("params", "outcome"))
        assert int(row["size"]) == bodies
        kept.update({shares[0]: bodies, shares[-1]: bodies})
        wanted[f"reference:{row['reference']}"] = id
        if row["name"]:
            wanted[f"repeat:{row['name']}"] = f"{row['expires']} {id}"
    return dict(wanted) | {f"kept:{share}": str(size) for share, size in kept.items() if size}
