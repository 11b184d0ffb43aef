"""The console for operators, `/ui`: a page with a style sheet and scripts, and the session that it signs in with."""
