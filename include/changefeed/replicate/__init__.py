"""A follower: a second server that the changes of a pipeline's topics are applied to, in the source's commit order."""
