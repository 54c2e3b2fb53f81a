"""Spark's settings for our jobs, where its own defaults are for others; a pipeline's `spark.conf` goes before them."""

_FIRST_COMPILER = "-XX:TieredStopAtLevel=1"

JOB_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.driver.extraJavaOptions": _FIRST_COMPILER,
    "spark.executor.extraJavaOptions": _FIRST_COMPILER,
}
"""A run is short and its log is Airflow's: a web page of its own would only open a port. The JVM moves blocks that
Python made: what its second compiler costs in a minute (3 CPU seconds) is more than it wins."""

SMALL_BYTES = 64 * 1024 * 1024
SMALL_JOB_CONF = JOB_CONF | {
    "spark.driver.extraJavaOptions": f"{_FIRST_COMPILER} -XX:+UseSerialGC -Xshare:auto",
}
"""For a window of so few bytes: a JVM that starts sooner, and would be slower at long work."""

BATCH_CONF = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": 8,
}
"""Spark counts a batch in rows, 10,000 of them, and holds it in memory; our rows are blocks of about a megabyte."""
