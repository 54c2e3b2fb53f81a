"""The compiled code that converts events into messages. Each file has a few functions, which call those of lower
files."""
