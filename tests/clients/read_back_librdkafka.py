"""Reads topics by partition with librdkafka, from their beginnings to their ends.

Prints what tests/kafka/java/ReadBack.java prints: a line for each record (topic, partition, offset, value), then
one for each partition with the position where the consumer stands.

Arguments: BOOTSTRAP ISOLATION_LEVEL TOPIC...
"""

import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

PATIENCE_SECONDS = 30


def main():
    bootstrap, level, *topics = sys.argv[1:]
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": level,
            "enable.partition.eof": True,
        }
    )
    wanted = []
    for topic in topics:
        for index in consumer.list_topics(topic, PATIENCE_SECONDS).topics[topic].partitions:
            wanted.append(TopicPartition(topic, index, OFFSET_BEGINNING))
    consumer.assign(wanted)
    ends = {}
    while len(ends) < len(wanted):
        message = consumer.poll(PATIENCE_SECONDS)
        if message is None:
            sys.exit(f"nothing for {PATIENCE_SECONDS} s; ends so far: {ends}")
        at = (message.topic(), message.partition())
        if message.error() is None:
            print(*at, message.offset(), message.value().decode())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ends[at] = message.offset()
        else:
            sys.exit(str(message.error()))
    for at, end in sorted(ends.items()):
        print("end", *at, end)
    consumer.close()


if __name__ == "__main__":
    main()
