"""One pipeline: its connections, topics, schema history and open windows, for all that works on it."""
