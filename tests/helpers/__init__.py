"""What tests are told with: time and chance in hand, bounded waits, texts to feed, peers with a script."""
