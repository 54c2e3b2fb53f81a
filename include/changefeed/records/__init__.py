"""Message blocks, the Kafka record batches that are built from them, and readers of such batches. No Kafka client."""
