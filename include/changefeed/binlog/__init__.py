"""Decodes the bytes of a binlog to events and messages: framing, table maps, column codecs, row programs, the
kernel."""
