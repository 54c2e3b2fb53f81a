"""Messages -> message blocks -> finished Kafka record batches, and back. No client of Kafka."""
