"""Authentication and authorization: from a bearer token to the auth context that owns tasks.

`bearer` reads a request's token, and `jwt` verifies it with the keys of its issuer. `claims` reads
the identity in it, which `context` binds to an `AuthContext`. `jwks` caches an issuer's keys;
`fetch` and `discovery` get them, `keyset` selects the usable ones. `authorization` has the
operator's access rules, `metadata` what hosts are told about tokens, `key_file` the deployment key,
`settings` the settings of an issuer. Users are `admission`, `listener` and the composition root.
"""
