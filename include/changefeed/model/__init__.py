"""Values: coordinates, GTID sets, windows, checkpoints, manifests, tables and columns, routes and rules.

The modules use no client and no settings. Within the package they import only `changefeed.errors`.
"""
