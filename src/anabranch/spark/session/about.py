"""Spark's version, master and UI in one line, for the start of a run.

Spark gives the address of its UI by its context alone, which Spark Connect does not have.  So
it is put together from settings; where the port is taken, Spark takes one of the next.
"""

from typing import TYPE_CHECKING, Final

from anabranch.spark.session.connect import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SWITCH: Final = "spark.ui.enabled=true"
"""The setting that switches Spark's UI on."""

_PORT: Final = "4040"
"""Where Spark's UI is unless it is configured."""


def about(spark: "SparkSession") -> str:
    """Spark's version, where it runs, and where its UI is or what switches it on."""
    master = spark.conf.get("spark.master", "an unknown master")
    where = f"Spark {spark.version} on {master}"
    if is_connect(spark):
        return f"{where}, by Spark Connect: the UI is the server's"
    if spark.conf.get("spark.ui.enabled", "true") != "true":
        return f"{where}; its UI is off, --conf {SWITCH} switches it on"
    host = spark.conf.get("spark.driver.host", "localhost")
    port = spark.conf.get("spark.ui.port", _PORT)
    return f"{where}; its UI is http://{host}:{port} (if that port is taken, one of the next)"
