"""What is owed to extensions that cross: the part of `requirements` that is about what is not the gateway's own.

Events of a server are neither relayed by subscriptions of the gateway's own nor translated between eras.
"""

from typing import Final

FOR_EXTENSIONS: Final = {
    # Negotiation and carriage
    "X-EXT-1": "an extension is a key of capabilities.extensions with an object of settings; what is none is none",
    "X-EXT-5": "what is under experimental, and a capability of no revision, is declared only where it is carried",
    "X-EXT-6": "each side learns the other's extensions that are carried, with their settings",
    "X-EXT-7": "an extension crosses between eras only where it is defined in both",
    "X-EXT-8": "sessions with servers are shared by what they declare, extensions included",
    "X-EXT-9": "what the gateway reads of a catalogue it reads with the declaration of the host that it is for",
    "X-EXT-20": "a method crosses where a carried extension lists it, with its parameters; no other does",
    "X-EXT-21": "results are complete ones of the host's era, and cacheable ones say that they may not be kept",
    "X-EXT-22": "a type of result that no carried extension lists is a failure",
    "X-EXT-23": "listed notifications cross in the answer to a request, under the host's id, and in sessions",
    "X-EXT-24": "members of the filter cross where they are listed, declared and acknowledged",
    "X-EXT-26": "a request of a server that the core does not define is refused, and no host is asked",
    "X-EXT-27": "keys of _meta cross but for those of one hop",
    "X-EXT-29": "requests of extensions need no Mcp-Name, and have Mcp-Method",
    "X-EXT-30": "a method that does not cross is refused with 404 in the modern era",
    "X-EXT-31": "codes of a carried extension cross unchanged, others mean what they did",
    "X-EXT-32": "a request that lasts has no bound of time, and a cap of its own",
    "X-EXT-33": "rules, limits and labels name the methods of carried extensions",
    "X-EXT-34": "nothing but tools/call becomes a task",
    "X-EXT-40": "subscriptions to events are carried only where the server can tell the users apart",
    "X-EXT-42": "what a server says on a line that several share goes to no caller whom it may not be for",
    "X-EXT-43": "a request that lasts ends with its host, its token and the gateway",
    "X-EXT-48": "extensions about authorization cross in no direction",
    "X-EXT-50": "apps and skills cross unless they are denied, events and all others do not unless they are allowed",
    "X-EXT-51": "an allowed identifier that is not known crosses with its declaration, and no methods",
    "X-EXT-52": "what is denied is declared in no spelling, and its methods are refused",
    "X-EXT-53": "what is denied is logged once, counted, and explained",
    "X-EXT-54": "a reload that changes what crosses opens sessions anew",
    "X-EXT-55": "experimental and unknown capabilities follow the default",
    "X-EXT-56": "the policy is the same for programs and for HTTP+SSE",
    # Apps
    "X-APP-1": "the settings of a host with apps come to the server",
    "X-APP-3": "the views that tools name stay to the byte",
    "X-APP-5": "a view is read with resources/read, whether it is listed or not",
    "X-APP-8": "a tool for views alone is listed and may be called",
    "X-APP-9": "a tool for views alone is run as a plain call unless a rule says otherwise",
    "X-APP-10": "a view gets the same bytes of a tool that ran as a task",
    # Skills
    "X-SK-1": "skills cross whatever the host declares, before servers of both eras",
    "X-SK-2": "skills are listed, got and read",
    "X-SK-4": "no byte of a skill changes",
    "X-SK-5": "an unknown skill is -32602",
    "X-SK-6": "what is listed of skills is private",
    # Events of a server
    "X-UE-1": "events of a server are neither declared nor answered unless they are allowed",
    "X-UE-2": "allowed events are listed and subscribed to",
    "X-UE-3": "a webhook gets what its server signs, for the id that its host was given",
    "X-UE-7": "a program is never subscribed to for a webhook",
}
