"""Values: coordinates, GTID sets, windows, checkpoints, manifests, tables and columns, routes and rules.

No client and no settings: of the package it imports the errors only.
"""
