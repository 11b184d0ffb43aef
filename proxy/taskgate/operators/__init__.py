"""The API for operators, `/api/v1`: what a route takes and answers, and which token may use it.

`api.OperatorsApi` answers a request. `listener.operations` carries it over HTTP, and `wiring` gives the
parts of the gateway to the handlers. The document of the API is made from the table of routes
(`openapi`).
"""
