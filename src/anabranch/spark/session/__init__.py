"""A Spark session, its Java, and the machine that it runs on."""
