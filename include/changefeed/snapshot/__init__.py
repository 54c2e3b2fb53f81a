"""Rows that are there already: tables read in chunks beside the pipeline's windows, and published as op r."""
