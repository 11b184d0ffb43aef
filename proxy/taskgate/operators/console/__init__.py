"""The console for operators, `/ui`: one page of three files, and the session that it signs in with."""
