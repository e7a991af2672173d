"""Test streams with their truth: a random history, and replicas that present it."""
