"""What a pipeline is connected to: the servers it reads, the cluster it publishes to, and its logs there."""
