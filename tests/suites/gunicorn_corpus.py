"""What gunicorn's own parser makes of the requests of its tests; runs in the suite's environment.

`python gunicorn_corpus.py FOLDER` reads the folder of the tests and prints a JSON array: of each request its part, name
and bytes in base64, how many requests the parser finds, whether the last one ends the connection, and what is wrong.
"""

import base64
import json
import sys
from pathlib import Path
from typing import Any

TESTS = Path(sys.argv[1])
sys.path.insert(0, str(TESTS))

import treq  # noqa: E402
from gunicorn.http.parser import RequestParser  # noqa: E402


def parsed(file: Path) -> dict[str, Any]:
    """One request, with the settings of its test."""
    test = treq.load_py(str(file.with_suffix(".py")))
    data = treq.badrequest(str(file)).data
    heads, closes, error = 0, False, None
    try:
        for request in RequestParser(test["cfg"], iter([data]), None):
            heads += 1
            request.body.read()
            closes = request.should_close()
    except Exception as failure:
        error = type(failure).__name__
    return {
        "part": file.parent.name,
        "row": file.stem,
        "bytes": base64.b64encode(data).decode(),
        "heads": heads,
        "closes": closes,
        "error": error,
    }


sys.stdout.write(json.dumps([parsed(file) for file in sorted(TESTS.glob("requests/*/*.http"))]))
