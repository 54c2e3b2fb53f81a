"""Spark sessions, and the stages that decode slices into batches and publish the batches to topics."""
