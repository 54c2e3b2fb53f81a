"""Bytes of a binlog -> events -> text: framing, table maps, column codecs, row programs, the kernel."""
