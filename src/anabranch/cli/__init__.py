"""The command line: one module per command; `main` finds and runs them."""
