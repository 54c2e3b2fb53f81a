"""What compiled code is made of: how it is compiled, memory, spans, hashes, numbers of varying length."""
