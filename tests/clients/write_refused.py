"""Sends one record with an idempotent producer of librdkafka and prints what came of it: "written", or the error's name and text.

Arguments: BOOTSTRAP TOPIC PARTITION.
"""

import sys

from confluent_kafka import Producer


def main():
    bootstrap, topic, partition = sys.argv[1:4]
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 20000})

    def reported(error, message):
        if error is None:
            print("written at offset", message.offset())
        else:
            print(f"{error.name()} ({error.code()}): {error.str()}")

    producer.produce(topic, value=b"value", key=b"key", partition=int(partition), on_delivery=reported)
    left = producer.flush(30)
    if left:
        sys.exit(f"{left} records were neither written nor refused")


if __name__ == "__main__":
    main()
