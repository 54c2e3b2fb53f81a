"""A pipeline's settings: its YAML file, the checks of it, and the folder of these files."""
