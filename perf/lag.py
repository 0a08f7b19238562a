#!/usr/bin/env python3
"""From an append at the source to the record in a consumer's hands at the destination.

Producer and consumer are librdkafka with its defaults (fetch.wait.max.ms 500, acks=all) but for
linger.ms=0, in two processes that share the monotonic clock. Each record carries the moment it was
produced. The first seconds are dropped. Prints one JSON line: counts and percentiles in milliseconds.
"""

import argparse
import json
import multiprocessing
import os
import struct
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition


def produce(options, ready):
    producer = Producer({"bootstrap.servers": options.source, "linger.ms": 0, "acks": "all"})
    padding = os.urandom(options.value_bytes - 8)
    ready.wait()
    period = 1.0 / options.rate
    due = time.monotonic()
    end = due + options.warm_up + options.seconds
    while due < end:
        pause = due - time.monotonic()
        if pause > 0:
            producer.poll(0)
            time.sleep(pause)
        stamp = struct.pack(">q", time.monotonic_ns())
        producer.produce(options.topic, value=stamp + padding, partition=0)
        producer.poll(0)
        due += period
    producer.flush(10)


def consume(options, ready):
    consumer = Consumer(
        {
            "bootstrap.servers": options.destination,
            "group.id": "lag",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
        }
    )
    partition = TopicPartition(options.topic, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=10)
    partition.offset = end
    consumer.assign([partition])
    consumer.poll(1.0)
    ready.set()
    started = None
    lags = []
    expected = int(options.rate * (options.warm_up + options.seconds))
    received = 0
    quiet_until = time.monotonic() + 30
    while received < expected and time.monotonic() < quiet_until:
        message = consumer.poll(1.0)
        now = time.monotonic_ns()
        if message is None:
            continue
        if message.error():
            print(message.error(), file=sys.stderr)
            continue
        quiet_until = time.monotonic() + 30
        received += 1
        (stamp,) = struct.unpack(">q", message.value()[:8])
        started = started or stamp
        if stamp - started >= options.warm_up * 1e9:
            lags.append((now - stamp) / 1e6)
    consumer.close()
    return lags, received, expected


def percentile(ordered, share):
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--source", required=True, help="host:port to produce to")
    parser.add_argument("--destination", required=True, help="host:port to consume from")
    parser.add_argument("--topic", required=True, help="a topic with a partition 0 on both")
    parser.add_argument("--rate", type=float, default=100, help="records a second (default 100)")
    parser.add_argument("--seconds", type=float, default=20, help="measured seconds (default 20)")
    parser.add_argument("--warm-up", type=float, default=2, help="seconds dropped first (default 2)")
    parser.add_argument("--value-bytes", type=int, default=1024, help="bytes of a value (default 1024)")
    options = parser.parse_args()

    ready = multiprocessing.Event()
    producer = multiprocessing.Process(target=produce, args=(options, ready), daemon=True)
    producer.start()
    lags, received, expected = consume(options, ready)
    producer.join(5)
    lags.sort()
    if not lags:
        sys.exit(f"no record of {expected} arrived")
    names = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
    result = {"rate": options.rate, "received": received, "expected": expected, "max": round(lags[-1], 2)}
    result.update({name: percentile(lags, share) for name, share in names.items()})
    print(json.dumps(result))
    if received < expected:
        sys.exit(f"{expected - received} records did not arrive")


if __name__ == "__main__":
    main()
