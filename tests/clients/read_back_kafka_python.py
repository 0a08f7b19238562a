"""Reads topics by partition with kafka-python, from their beginnings to their ends.

Prints what tests/kafka/java/ReadBack.java prints: a line for each record (topic, partition, offset, value), then
one for each partition with the position where the consumer stands.

Arguments: BOOTSTRAP ISOLATION_LEVEL TOPIC...
"""

import sys
import time

from kafka import KafkaConsumer, TopicPartition

PATIENCE_SECONDS = 60


def main():
    bootstrap, level, *topics = sys.argv[1:]
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=level, enable_auto_commit=False)
    wanted = [
        TopicPartition(topic, index) for topic in topics for index in consumer.partitions_for_topic(topic)
    ]
    consumer.assign(wanted)
    consumer.seek_to_beginning(*wanted)
    ends = consumer.end_offsets(wanted)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(consumer.position(one) < ends[one] for one in wanted):
        if time.monotonic() > deadline:
            sys.exit(f"after {PATIENCE_SECONDS} s at {[consumer.position(one) for one in wanted]} of {ends}")
        for records in consumer.poll(timeout_ms=100).values():
            for record in records:
                print(record.topic, record.partition, record.offset, record.value.decode())
    for one in sorted(wanted):
        print("end", one.topic, one.partition, consumer.position(one))
    consumer.close()


if __name__ == "__main__":
    main()
