"""The benchmark: what taskgate costs, as ratios to small programs that do the same duty and nothing else.

Run as `python -m bench` from the checkout. Nothing here is part of the package, and only `stock`, which fills a
store's file beforehand, imports it: taskgate is started as an operator would start it and is spoken to over loopback,
exactly as the baselines are.
"""
