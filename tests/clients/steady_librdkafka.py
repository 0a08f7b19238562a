"""An application on librdkafka that writes all the time, with an idempotent producer that goes on whatever happens
to the cluster. Prints a line for each acknowledged record, as tests/kafka/java/SteadyProducers.java does: "acked",
topic, partition, offset, value. Ends when a file appears and nothing is under way.

Arguments: BOOTSTRAP STOP_FILE TOPIC...
"""

import itertools
import os
import sys
import time

from confluent_kafka import Producer

PAUSE_SECONDS = 0.002
FLUSH_SECONDS = 60


def say(*words):
    """Prints a line with one write: librdkafka logs to the same file, and Python may be told not to buffer."""
    sys.stdout.write(" ".join(str(word) for word in words) + "\n")
    sys.stdout.flush()


def main():
    bootstrap, stop_file, *topics = sys.argv[1:]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "socket.timeout.ms": 3000,
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.interval.ms": 1000,
            "message.timeout.ms": 120000,
        }
    )

    def reported(error, message):
        value = message.value().decode()
        if error is None:
            say("acked", message.topic(), message.partition(), message.offset(), value)
        else:
            say("failed", value, error)

    for i in itertools.count():
        if os.path.exists(stop_file):
            break
        value = f"librdkafka-{i}"
        producer.produce(topics[i % len(topics)], value, partition=0, on_delivery=reported)
        producer.poll(PAUSE_SECONDS)
        time.sleep(PAUSE_SECONDS)
    if producer.flush(FLUSH_SECONDS):
        sys.exit("records were neither written nor refused")
    say("ended")


if __name__ == "__main__":
    main()
