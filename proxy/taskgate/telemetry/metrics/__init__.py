"""What is counted for operators.

From below: `labels` are the closed sets of what a series may be told apart by; `families` says what a family is, and
`*_families` which there are, gathered by `catalogue`; `series` and `names` hold every series to its sets and its room,
`registry` opens them over the library's collectors, `bounds` tells how many there can be. `*_recorders` say which event
moves what, `contexts` and `configuration` keep what takes more than a number; `prometheus` puts them together, and
`exposition` puts into words what they counted.
"""
