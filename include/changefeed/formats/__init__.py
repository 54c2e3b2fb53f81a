"""Wire formats of row changes and statements: a registry, and one module for each format."""
