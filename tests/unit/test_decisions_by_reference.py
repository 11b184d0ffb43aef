"""Whatever a file says, and whoever asks, the parts decide as the documentation reads.

The reference is written from docs/configuration.md alone and shares nothing with what it judges but the words of the
file. It counts tokens in buckets, in fractions, where the gateway has theoretical arrival times.
"""

import asyncio
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.examples import examples
from taskgate.admission.rules import AdmissionRules
from taskgate.auth.context import Identity
from taskgate.config import GatewayConfig
from taskgate.config.model import admission_rules
from taskgate.domain.rates import RateSubject
from taskgate.stores.rates import MemoryRateStore
from unit.auth.identities import identity

Tree = dict[str, Any]

UPSTREAMS, TOOLS = ("m", "n"), ("x", "xy")
METHODS = ("tools/call", "tools/list", "tasks/get", "initialize")
# Every glob here is a name, or ends in its only star.
GLOBS = ("x", "x*", "xy")
KINDS = ("person", "robot")
CALLERS: list[tuple[str | None, str]] = [("gold", "person"), ("gold", "robot"), ("tin", "robot"), (None, "person")]
SECONDS = {"s": 1, "m": 60, "h": 3600}
# Each has a length from one to the next that a float holds exactly.
RATES = ("1/s", "4/s", "30/m", "6/m", "60/h")
LENGTHS = {"5m": 300, "10m": 600, "1h": 3600, "2h": 7200, "3h": 10_800, "24h": 86_400}


# --- the reference


def fits(glob: str | None, name: str | None) -> bool:
    if glob is None or name is None:
        return glob is None
    return name.startswith(glob[:-1]) if glob.endswith("*") else name == glob


def promoted(file: Tree, upstream: str, tool: str, hints: Tree) -> tuple[int | None, str, bool, list[int]]:
    """The rule that decides, the mode, whether a rule in shadow would have made a task, and the times to live."""
    usual, shadow = file["tasks"]["ttl"], None
    for number, rule in enumerate(file["tasks"]["upgrade"]):
        listed = all(hints.get(name) is value for name, value in rule["hints"].items())
        if rule["upstream"] not in (None, upstream) or not fits(rule["tool"], tool) or not listed:
            continue
        if rule["shadow"]:
            shadow = shadow or rule["mode"]
            continue
        keys = {"ttl": "default", "ttl_min": "min", "ttl_max": "max"}
        lengths = [LENGTHS[rule.get(key) or usual[general]] for key, general in keys.items()]
        return number, rule["mode"], rule["mode"] == "sync" and shadow not in (None, "sync"), lengths
    return None, "sync", shadow not in (None, "sync"), [LENGTHS[usual[key]] for key in ("default", "min", "max")]


def allowed(file: Tree, caller: tuple[str | None, str], held: set[str], request: Tree) -> tuple[bool, list[str]]:
    """Whether the rules let a request through, and all scopes that it lacks otherwise."""
    for rule in file["authorization"]["rules"]:
        matches = rule["upstream"] in (None, request["upstream"]) and fits(rule["tool"], request["tool"])
        matches = matches and (not rule["methods"] or any(fits(glob, request["method"]) for glob in rule["methods"]))
        if matches and all(caller[1] in values for values in rule["claims"].values()) and not rule["shadow"]:
            refused = rule["effect"] == "deny" or not set(rule["require_scopes"]) <= held
            return not refused, sorted(rule["require_scopes"]) if refused else []
    return file["authorization"]["default"] == "allow", []


def override_of(file: Tree, caller: tuple[str | None, str]) -> Tree:
    for each in file["limits"]["overrides"]:
        tenant, kinds = each["match"]["tenant"], each["match"]["claims"].get("kind", KINDS)
        if tenant in (None, caller[0]) and caller[1] in kinds:
            return each
    return {"rate": {}, "ttl_max": None}


class Buckets:
    """What is left of every budget: all of it at first, and again after a while."""

    def __init__(self, file: Tree) -> None:
        self.policies = file["limits"]["rate"]
        self.left: dict[object, tuple[Fraction, Fraction]] = {}

    def take(self, caller: tuple[str | None, str], rates: Tree, request: Tree, now: Fraction) -> dict[str, bool]:
        """Which policies for the request have room; it takes from those if all that enforce have."""
        has_room, found = {}, []
        for policy in filter(lambda each: self._is_for(each, request), self.policies):
            upstream, tool, whom = request["upstream"], request["tool"], policy["scope"]
            sharer = {"context": caller, "tenant": caller[0], "upstream": upstream, "tool": tool and (upstream, tool)}
            if whom in ("ip", "global") or sharer[whom] is not None:
                key, (speed, burst) = (policy["name"], sharer.get(whom)), self._limit(policy, rates)
                level, at = self.left.get(key, (burst, now))
                level = min(burst, level + (now - at) * speed)
                has_room[policy["name"]] = level >= policy["cost"]
                found.append((policy, key, level))
        if all(has_room[policy["name"]] or policy["mode"] == "shadow" for policy, *_ in found):
            for policy, key, level in found:
                self.left[key] = level - policy["cost"] * has_room[policy["name"]], now
        return has_room

    def _is_for(self, policy: Tree, request: Tree) -> bool:
        if policy["upstream"] not in (None, request["upstream"]) or not fits(policy["tool"], request["tool"]):
            return False
        if policy["methods"] != ["*"]:
            return policy["methods"] is None or any(fits(glob, request["method"]) for glob in policy["methods"])
        # The rest: what no other policy of the scope names that is not narrowed, nor in shadow while this one refuses.
        return not any(
            any(fits(glob, request["method"]) for glob in other["methods"] or ())
            for other in self.policies
            if other["scope"] == policy["scope"] and other["methods"] != ["*"] and other["tool"] is None
            if other["upstream"] is None and (other["mode"] == "enforce" or policy["mode"] == "shadow")
        )

    def _limit(self, policy: Tree, rates: Tree) -> tuple[Fraction, Fraction]:
        def speed(rate: str) -> Fraction:
            return Fraction(int(rate[:-2]), SECONDS[rate[-1]])

        own = speed(policy["rate"])
        burst = policy["burst"] or int(policy["rate"][:-2])
        if policy["name"] not in rates:
            return own, Fraction(burst)
        new = speed(rates[policy["name"]])
        return new, Fraction(max(policy["cost"], -(-burst * new // own)))


# --- files and requests


def _sorted_lengths(drawn: list[str]) -> Tree:
    return dict(zip(("ttl_min", "ttl", "ttl_max"), sorted(drawn, key=LENGTHS.__getitem__), strict=True))


upstreams = st.sampled_from([None, *UPSTREAMS])
lengths = st.lists(st.sampled_from(list(LENGTHS)), min_size=3, max_size=3).map(_sorted_lengths)
_upgrade = {
    "upstream": upstreams,
    "tool": st.sampled_from(GLOBS),
    "hints": st.just({}) | st.dictionaries(st.just("readOnlyHint"), st.booleans()),
    "shadow": st.booleans(),
}
upgrades = st.fixed_dictionaries({**_upgrade, "mode": st.sampled_from(["sync", "auto", "required"])}) | st.builds(
    lambda rule, spans: {**rule, **spans}, st.fixed_dictionaries({**_upgrade, "mode": st.just("always")}), lengths
)
accesses = st.fixed_dictionaries(
    {
        "methods": st.none() | st.lists(st.sampled_from([*METHODS, "tools/*", "*"]), min_size=1, max_size=2),
        "upstream": upstreams,
        "tool": st.sampled_from([None, *GLOBS]),
        "claims": st.dictionaries(st.just("kind"), st.lists(st.sampled_from(KINDS), min_size=1), max_size=1),
        "shadow": st.booleans(),
    }
).flatmap(
    lambda rule: st.sampled_from(
        [{**rule, "effect": "deny", "require_scopes": []}]
        + [{**rule, "effect": "allow", "require_scopes": needed} for needed in ([], ["a"], ["a", "b"])]
    )
)
rates = st.fixed_dictionaries(
    {
        "scope": st.sampled_from(["context", "context", "context", "tenant", "ip", "upstream", "tool", "global"]),
        "rate": st.sampled_from(RATES),
        "burst": st.sampled_from([2, 3]),
        "cost": st.sampled_from([1, 1, 2]),
        "methods": st.sampled_from([None, ["*"], ["*"], ["tools/call"], ["tasks/*"], ["tools/list", "tasks/get"]]),
        "upstream": st.sampled_from([None, None, None, *UPSTREAMS]),
        "tool": st.sampled_from([None, None, None, *GLOBS]),
        "mode": st.sampled_from(["enforce", "shadow"]),
    }
)


@st.composite
def files(draw: st.DrawFn) -> Tree:
    """The sections of a file that decide, with every key that the reference reads."""
    policies = [
        {"name": f"p{place}", **each} for place, each in enumerate(draw(st.lists(rates, min_size=1, max_size=4)))
    ]
    mine = [each["name"] for each in policies if each["scope"] == "context"]
    override = st.fixed_dictionaries(
        {
            "match": st.fixed_dictionaries(
                {
                    "tenant": st.sampled_from([None, "gold"]),
                    "claims": st.dictionaries(st.just("kind"), st.just(["robot"]), max_size=1),
                }
            ),
            "rate": st.dictionaries(st.sampled_from(mine), st.sampled_from(RATES), min_size=1) if mine else st.just({}),
            "ttl_max": st.none() | st.sampled_from(list(LENGTHS)),
        }
    )
    rules = draw(st.lists(upgrades, min_size=2, max_size=4))
    last = draw(st.none() | st.just({"upstream": None, "tool": "*", "hints": {}, "mode": "auto", "shadow": False}))
    return {
        "tasks": {"upgrade": rules + ([last] if last else []), "ttl": {"default": "1h", "min": "5m", "max": "24h"}},
        "authorization": {
            "default": draw(st.sampled_from(["allow", "deny"])),
            "rules": draw(st.lists(accesses, max_size=4)),
        },
        "limits": {"replace_defaults": True, "rate": policies, "overrides": draw(st.lists(override, max_size=3))},
    }


requests = st.fixed_dictionaries(
    {
        "pause": st.sampled_from([0, 0, 0, 0, 1, 4, 40]).map(lambda quarters: Fraction(quarters, 4)),
        "caller": st.sampled_from(CALLERS),
        "scopes": st.sampled_from([(), ("a",), ("a", "b")]),
        "upstream": st.sampled_from(UPSTREAMS),
        "method": st.sampled_from(["tools/call", *METHODS]),
        "tool": st.sampled_from(TOOLS),
        "hints": st.dictionaries(st.just("readOnlyHint"), st.booleans()),
    }
).map(lambda each: each if each["method"] == "tools/call" else {**each, "tool": None})


def configuration(file: Tree) -> GatewayConfig:
    issuer = {"issuer": "https://idp.example.com/", "claims": {"tenant": "org"}}
    mounts = {name: {"path": f"/{name}", "url": "http://127.0.0.1:9"} for name in UPSTREAMS}
    auth = {"mode": "required", "issuers": {"corp": issuer}}
    # A request that may wait for its turn is allowed now: what is compared is who is at once.
    limits = {**file.get("limits", {}), "wait": "0s"}
    return GatewayConfig.model_validate({"version": 1, "auth": auth, "upstreams": mounts, **file, "limits": limits})


def identity_of(request: Tree) -> Identity:
    tenant, kind = request["caller"]
    return replace(identity(*request["scopes"], kind=kind), tenant=tenant)


def _span(seconds: int | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


async def play(file: Tree, rules: AdmissionRules, asked: list[Tree]) -> None:
    """Put every request to the parts and to the reference."""
    store, buckets, now = MemoryRateStore(), Buckets(file), Fraction(1000)
    for request in asked:
        now += request["pause"]
        caller, who, upstream, tool = request["caller"], identity_of(request), request["upstream"], request["tool"]
        own, expected = rules.overrides.find(caller[0], who.claims), override_of(file, caller)
        if tool is not None:
            decision = rules.policy.decide(upstream, tool, request["hints"])
            number, mode, would, (default, least, most) = promoted(file, upstream, tool, request["hints"])
            assert (decision.rule, decision.mode, decision.would_promote) == (number, mode, would)
            most = LENGTHS[expected["ttl_max"]] if expected["ttl_max"] else most
            for wish in (None, 1, 4000, 10**6):
                granted = decision.clamp_ttl(_span(wish), own.ttl_max if own else None)
                assert granted == _span(min(max(default if wish is None else wish, least), most))
        judged = rules.access.decide(who, method=request["method"], upstream=upstream, tool=tool)
        verdict = allowed(file, caller, set(request["scopes"]), request)
        assert (judged.allowed, sorted(judged.missing_scopes)) == verdict
        demands = rules.rates.demands(
            RateSubject(repr(caller), repr(caller), caller[0], "127.0.0.1"),
            own.rates if own else {},
            upstream,
            request["method"],
            tool,
        )
        verdicts = store.take(demands, now=float(now))
        has_room = {demand.policy.name: each.allowed for demand, each in zip(demands, verdicts, strict=True)}
        assert has_room == buckets.take(caller, expected["rate"], request, now)


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(file=files(), asked=st.lists(requests, min_size=20, max_size=30))
def test_the_parts_decide_as_the_documentation_reads(file: Tree, asked: list[Tree]) -> None:
    asyncio.run(play(file, admission_rules(configuration(file)), asked))
