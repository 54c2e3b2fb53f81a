"""The embedded MySQL, MariaDB, Kafka and Airflow that `make demo` and the tests start.

All files are below one folder (`.devstack/`, see `devstack.home`). The servers listen on 127.0.0.1 only, and need
neither Docker nor root. `changefeed` itself imports nothing of this package.
"""
