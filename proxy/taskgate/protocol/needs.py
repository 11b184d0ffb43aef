"""What requests lack: capabilities that their hosts do not declare, as hosts declare them. Pure."""

from collections.abc import Mapping
from typing import Any


def together(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What declares both; the members of either are objects, and theirs are."""
    found = {name: {**one.get(name, {}), **other.get(name, {})} for name in (*one, *other)}
    if "elicitation" in one and "elicitation" in other and not (one["elicitation"] and other["elicitation"]):
        # Nothing said of modes is forms, which modes without them would take back.
        found["elicitation"] = {"form": {}, **found["elicitation"]} if found["elicitation"] else {}
    return found
