"""Writes a random history of keyed records into partition 0 of a topic, with librdkafka.

Few keys many times, some of them deleted, in batches of every codec. KIND is `plain`, or `transactional`: then
there are transactions beside it, of which some are aborted, and one batch after the other of three producers lies
among those of the others. The same SEED makes the same records; how they lie in batches depends on the moment.

Arguments: BOOTSTRAP TOPIC KIND SEED RECORDS
"""

import random
import sys

from confluent_kafka import Producer

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
KEYS = 200
RUN = 40


def main():
    bootstrap, topic, kind, seed, records = sys.argv[1:]
    rng = random.Random(int(seed))

    def producer(codec, **more):
        return Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 60000,
                **{name.replace("_", "."): value for name, value in more.items()},
            }
        )

    plain = [producer(codec) for codec in CODECS]
    transactional = []
    if kind == "transactional":
        for codec in ["none", "zstd", "lz4"]:
            one = producer(codec, transactional_id=f"{topic}-{seed}-{codec}")
            one.init_transactions()
            transactional.append(one)
    faults = []

    def on_delivery(error, _):
        if error is not None:
            faults.append(error)

    def send(one):
        for _ in range(rng.randrange(1, RUN)):
            key = f"key-{int(rng.random() ** 2 * KEYS)}"
            value = None
            if rng.randrange(12) > 0:
                value = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=rng.randrange(100, 900)))
            one.produce(topic, key=key, value=value, partition=0, on_delivery=on_delivery)
        one.flush()

    sent = 0
    while sent < int(records):
        if transactional and rng.randrange(3) == 0:
            began = rng.sample(transactional, rng.randrange(1, 4))
            for one in began:
                one.begin_transaction()
            for _ in range(rng.randrange(1, 5)):
                send(rng.choice(began))
                send(rng.choice(plain))
                sent += RUN
            for one in began:
                if rng.randrange(3) == 0:
                    one.abort_transaction()
                else:
                    one.commit_transaction()
        else:
            send(rng.choice(plain))
            sent += RUN // 2
    if faults:
        sys.exit(f"{len(faults)} records were not written: {faults[0]}")


if __name__ == "__main__":
    main()
