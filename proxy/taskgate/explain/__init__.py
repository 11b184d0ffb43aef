"""The content of the commands that inspect a configuration: `check`, `explain`, `metrics` and `token`.

For `taskgate explain`, `inputs` has the token, the hints and the server's declaration. `evaluate`
asks the rules that a gateway asks, and says which key a value comes from. `render` writes the text.
For `taskgate check`, `report` collects the findings: those of `rules` need the configuration alone,
those of `files` this machine. `online` asks other machines. `checks` has the programs, and the metrics
with their number of series. `running` explains calls for the API of a running gateway.
For `taskgate token inspect`, `token_checks` has one check of a token after the other.
`taskgate.cli` is the user.
"""
