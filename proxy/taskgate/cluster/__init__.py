"""What the processes of one deployment tell each other, so that any of them can serve any host."""
