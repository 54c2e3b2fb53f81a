"""The compiled code that turns events into messages: each file a few functions that call those below it."""
