"""The schemas of Avro records in a registry with Confluent's HTTP interface: ids, subjects, compatibility."""
