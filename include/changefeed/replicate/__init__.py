"""replicate: applies the changes of a pipeline's topics to a follower (a second server) in the source's order."""
