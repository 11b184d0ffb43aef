"""How much of what anybody may use: rates, caps, fair turns, and when to leave a server alone. Pure."""
