"""Tests of the consumer of Kafka topics."""
