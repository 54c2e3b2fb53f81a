"""An example to copy: a DAG that runs when the topic of the shop's orders has new records."""

from typing import Any

from airflow.sdk import dag, task

from changefeed.airflow.assets import topic_asset

ORDERS = topic_asset("kafka_shop", "shop.orders")


@dag(dag_id="example_downstream", schedule=[ORDERS], catchup=False, tags=["example"], is_paused_upon_creation=False)
def example_downstream() -> None:
    """Prints the number of new rows of each event, and their offsets in the topic."""

    @task
    def show(triggering_asset_events: Any = None) -> int:
        rows = 0
        for event in triggering_asset_events[ORDERS]:
            print(f"{event.extra['rows']} rows of {event.extra['table']}: {event.extra['offsets']}")
            rows += event.extra["rows"]
        return rows

    show()


example_downstream()
