"""The basis of compiled code: compilation, memory, spans, hashes, numbers of variable length."""
