"""Tools for tests of streams: random streams, readable asserts and cases that are pictures."""
