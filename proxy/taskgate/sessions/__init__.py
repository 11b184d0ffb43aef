"""Sessions of hosts and those with servers behind them."""
