"""Authentication and authorization: from a bearer token to the auth context that owns tasks.

`bearer` reads a request's token, and `jwt` verifies it with the keys of its issuer. `claims` has
the settings of an issuer and reads the identity in a token, which `context` binds to an
`AuthContext`. `jwks` caches an issuer's keys; `fetch` gets them, `keyset` selects the usable ones.
`metadata` is what hosts are told about tokens, and what issuers tell about keys. `authorization` has
the operator's access rules, `key_file` the deployment key. Users are `admission`, `listener` and the
composition root.
"""
