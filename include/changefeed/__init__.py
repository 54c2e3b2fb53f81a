"""MySQL's row changes into Kafka, in closed and accounted windows."""

__all__ = ["__version__"]

__version__ = "0.1.0"
