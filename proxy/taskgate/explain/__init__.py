"""The content of the commands that inspect a configuration: `explain`, `check` and `metrics`.

For `taskgate explain`, `inputs` has the token, the hints and the server's declaration. `evaluate`
asks the rules that a gateway asks, and says which key a value comes from. `render` writes the text.
`checks` has what `check` tests beyond the file, and the metrics with their number of series.
`taskgate.cli` is the user.
"""
