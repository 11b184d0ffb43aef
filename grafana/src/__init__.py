"""The generators of the dashboards, and the drawer of their previews. No part of the package that is installed."""
