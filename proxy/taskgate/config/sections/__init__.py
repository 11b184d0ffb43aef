"""The sections of the file, a module for each subject.

A module has the models of its keys and the rules between them (`*_conflicts`), which read the plain
values of the file. Methods such as `to_settings` convert a valid section into the settings of the
part that uses it. `upstreams` is split: `credentials` and `extensions` have two subjects of an
upstream. `server` also has `admin`; `telemetry` has `logging`, `metrics` and `tracing`.
`taskgate.config.model` is the user.
"""
