"""Commands that inspect a configuration or an audit log: `explain`, `check`, `metrics`, `audit`.

For `taskgate explain`, `inputs` has the token, the hints and the server's declaration. `evaluate`
asks the rules that a gateway asks, and says which key a value comes from. `render` writes the text.
`checks` has what `check` tests beyond the file, and the metrics with their number of series; `audit`
has the commands for the audit log. `taskgate.cli` is the user.
"""
