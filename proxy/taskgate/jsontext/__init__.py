"""JSON as text: member positions, edits by splice, limits; nothing is decoded whole. Pure.

`spans` finds the members of a text and is the main entry. `edits` makes the splices that change a
text. `depth` enforces limits before a parser runs. `long_values` finds the end of a long value.
`large` has results so large that they stay bytes. `protocol` is the main user; task records,
stores and the listener use the types of `large`.
"""
