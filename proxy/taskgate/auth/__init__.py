"""Authentication and authorization: from a bearer token to the auth context that owns tasks.

`claims` parses a request's token, has the settings of its issuer, and reads the identity in it. `jwt`
verifies the token with the keys of the issuer; `context` binds the identity to an `AuthContext`.
`jwks` caches an issuer's keys; `fetch` gets them, `keyset` selects the usable ones. `metadata` is what
hosts are told about tokens, and what issuers tell about keys. `authorization` has the operator's
access rules, `key_file` the deployment key. Users are `admission`, `listener` and the composition
root.
"""
