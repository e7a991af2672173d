"""What the merge benchmarks share: streams cut into steps, and how time is taken."""
