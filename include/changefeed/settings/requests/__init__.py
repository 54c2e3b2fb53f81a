"""Requests: one model for each action, from which the command's options, DAG params and REST bodies are built."""
