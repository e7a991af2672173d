"""For people at a terminal: one module per command; `main` finds and runs them."""
