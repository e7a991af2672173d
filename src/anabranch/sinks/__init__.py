"""Sinks of a query: one contract (`Sink`), and the sinks that need no Spark."""

from anabranch.sinks.contract import Sink

__all__ = ["Sink"]
