"""Row change -> message: one module a wire format."""
