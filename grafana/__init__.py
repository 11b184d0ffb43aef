"""What operators look at: dashboards, alerts, runbooks, and what generates them."""
