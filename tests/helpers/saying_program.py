"""A program that says on its standard output what it is told to, and remembers what it heard; of the standard library.

It is told by messages: `say` with lines, each said as it is, then `heard`, which says all that was heard, and `exit`
with a status.
"""

import json
import sys


def main() -> None:
    """Obey until the end of the input."""
    heard = []
    for line in sys.stdin.buffer:
        message = json.loads(line)
        heard.append(message)
        match message.get("method"):
            case "say":
                said = "".join(f"{each}\n" for each in message["params"]["lines"])
            case "heard":
                said = json.dumps({"jsonrpc": "2.0", "method": "notifications/heard", "params": {"all": heard}}) + "\n"
            case "exit":
                sys.exit(message["params"]["status"])
            case _:
                continue
        sys.stdout.write(said)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
