"""What a pipeline is set to: its YAML, checked, and the folder that holds it."""
