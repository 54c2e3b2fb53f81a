"""What people ask for: one model an action, which the command's options, a DAG's params and a REST body are made of."""
