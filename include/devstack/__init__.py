"""The embedded MySQL, MariaDB, Kafka and Airflow that `make demo` and the tests start.

Everything lives under one folder (`.devstack/`, see `devstack.home`), listens on 127.0.0.1 only, and needs
neither Docker nor root. Nothing here is imported by `changefeed` itself.
"""
