"""The steps of a run after `plan` froze its window: cut the window, publish it, and move the checkpoint."""
