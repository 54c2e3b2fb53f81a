"""Row change -> message: a registry, one module a wire format."""
