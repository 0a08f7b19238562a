//! Records for trying things out: keys that come back, values that compress as text does. The same
//! arguments give the same records.

use fastrand::Rng;

/// How many different keys there are.
const KEYS: u64 = 10_000;

const WORDS: [&str; 16] = [
    "order",
    "invoice",
    "shipped",
    "pending",
    "customer",
    "warehouse",
    "north",
    "south",
    "parcel",
    "retry",
    "accepted",
    "declined",
    "amount",
    "currency",
    "priority",
    "express",
];

/// The record with this number: its key and a value of `value_bytes`.
pub(crate) fn record(number: u64, value_bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let mut rng = Rng::with_seed(number);
    let key = format!("key-{:05}", number % KEYS);
    let mut value = format!("{number:012}");
    while value.len() < value_bytes {
        value.push(' ');
        value.push_str(WORDS[rng.usize(..WORDS.len())]);
    }
    value.truncate(value_bytes);
    (key.into_bytes(), value.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_its_size_and_is_the_same_again() {
        assert_eq!(record(7, 100), record(7, 100));
        assert_ne!(record(7, 100), record(8, 100));
        for size in [0, 1, 12, 13, 1000] {
            assert_eq!(record(3, size).1.len(), size);
        }
        assert_eq!(record(KEYS, 0).0, record(0, 0).0);
    }
}
