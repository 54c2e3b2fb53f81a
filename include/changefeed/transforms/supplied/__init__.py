"""Functions that come with the package: each file is one, of the same shape as users' own."""
