"""The runtime: streams of elements on Spark, the only room below jobs that imports pyspark.

`java` and `machine` know nothing of pyspark, so that a missing Java is explained before
Spark is asked for; `session` is what starts it.
"""
