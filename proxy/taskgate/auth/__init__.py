"""Who is asking: from what a request carries to the auth context that its tasks belong to."""
