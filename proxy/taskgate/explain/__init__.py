"""What the rules say to one caller of one tool: `taskgate explain`.

`given` reads what the question holds, `callers` verifies the token, `findings` asks the rules, `bounds` has what holds
for everybody, `extensions` what becomes of those, `servers` asks a server who it is, `places` knows where in the file
something stands, `wording` has the text for people. What must not live here: what a rule means, which is asked where a
running gateway asks it, and the command line.
"""

from taskgate.explain.callers import TokenRefused, who_is
from taskgate.explain.findings import explained
from taskgate.explain.given import read_hints, read_token
from taskgate.explain.servers import ServerNotAsked, ask
from taskgate.explain.wording import worded

__all__ = ["ServerNotAsked", "TokenRefused", "ask", "explained", "read_hints", "read_token", "who_is", "worded"]
