"""The engines that we know, as frozen values.

known         all of them, by name
own           `run(like="anabranch")`
paper         STREAM, Coral8, StreamBase
today         Spark, Flink, Kafka Streams, Beam
"""
