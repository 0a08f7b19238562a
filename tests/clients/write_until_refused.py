"""Writes to one partition as fast as it is acknowledged by all replicas, until something is refused. Prints a line for
each record: "acked", topic, partition, offset, value, or "refused", value, the error's name; then "ended".

Arguments: BOOTSTRAP TOPIC PARTITION IDEMPOTENT (true or false).
"""

import itertools
import sys

from confluent_kafka import Producer

UNDER_WAY_MAX = 200
POLL_SECONDS = 0.001
FLUSH_SECONDS = 60


def say(*words):
    """Prints a line with one write: librdkafka logs to the same file, and Python may be told not to buffer."""
    sys.stdout.write(" ".join(str(word) for word in words) + "\n")
    sys.stdout.flush()


def main():
    bootstrap, topic, partition, idempotent = sys.argv[1:5]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": idempotent == "true",
            "linger.ms": 1,
            "message.timeout.ms": 60000,
        }
    )
    refused = []

    def reported(error, message):
        value = message.value().decode()
        if error is None:
            say("acked", message.topic(), message.partition(), message.offset(), value)
        else:
            refused.append(value)
            say("refused", value, error.name())

    for i in itertools.count():
        if refused:
            break
        producer.produce(topic, f"{idempotent}-{i}", partition=int(partition), on_delivery=reported)
        producer.poll(POLL_SECONDS)
        while len(producer) > UNDER_WAY_MAX:
            producer.poll(POLL_SECONDS)
    if producer.flush(FLUSH_SECONDS):
        sys.exit("records were neither written nor refused")
    say("ended")


if __name__ == "__main__":
    main()
