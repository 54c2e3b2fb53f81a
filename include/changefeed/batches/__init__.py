"""Finished Kafka record batches: what decoding hands to publishing, through Spark."""
