"""One pipeline: its connections, topics, schema history and open windows, for all code that works on it."""
