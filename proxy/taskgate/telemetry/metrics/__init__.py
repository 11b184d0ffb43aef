"""The metrics that operators scrape: families, their labels, and the recorders that count events.

Each subject has a module with its families and recorders: `gateway`, `requests`, `upstreams`,
`tasks`, `admission` and `storage`. `catalogue` lists all families and computes how many series they
can have. `labels` and `families` define what a family is, and `children` are its series. `registry`
opens families and writes the page. `prometheus` has the `PrometheusRecorder`, for `wiring` and the
operators' listener.
"""
