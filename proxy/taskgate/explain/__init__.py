"""Commands that inspect a configuration or an audit log: `explain`, `check`, `metrics`, `audit`.

For `taskgate explain`, `inputs` has the token, the hints and the server's declaration. `evaluate`
asks the rules that a gateway asks, `config_paths` says which key a value comes from, and `render`
writes the text. `checks` has what `check` tests beyond the file, `series` the metrics and their number of
series, `audit` the commands for the audit log. `taskgate.cli` is the user.
"""
