"""Functions of the package, one for each file, in the form of users' functions."""
