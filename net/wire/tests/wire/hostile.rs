//! Bytes that are not what they should be: never a panic, and never much more memory than they are long.

use bytes::Bytes;
use tarn_wire::messages::*;
use tarn_wire::{Cursor, DecodeError, Message, MetadataRecord, decode_request_header};

use crate::maker::{Instance, case, every_array, every_message};
use crate::metering::{Taken, taken_by};
use crate::round_trip::encoded;

/// How many bytes of memory the elements of an array may take for each byte on the wire. The densest are
/// structs of strings and arrays: one byte each for an empty one here, 24 to 32 there.
const DENSITY_MAX: usize = 64;

/// The same for a whole message while it is read: an array that grows exists twice, once at up to double
/// its size, and each of a few nested arrays may have believed a count for as many bytes as are left.
const MEMORY_PER_BYTE_MAX: usize = 3 * DENSITY_MAX + 8;

/// And how much may be taken besides, for the first elements of nested arrays.
const MEMORY_BASE_MAX: usize = 4096;

fn decode_within_bounds<M: Message>(bytes: Bytes, version: i16) -> Result<M, DecodeError> {
    let length = bytes.len();
    let (decoded, Taken { peak, largest }) = taken_by(|| M::decode(&mut Cursor::new(bytes), version));
    let bound = length * MEMORY_PER_BYTE_MAX + MEMORY_BASE_MAX;
    let name = M::NAME;
    assert!(
        peak <= bound,
        "{name} v{version}: {peak} bytes of memory, {largest} at once, for {length} bytes"
    );
    decoded
}

fn survives<M: Message + Instance>() {
    for version in M::MIN_VERSION..=M::MAX_VERSION {
        let mut random = fastrand::Rng::with_seed(u64::from(version.cast_unsigned()));
        for seed in 0..4 {
            let whole = encoded::<M>(&case(seed, version), version);
            for cut in (0..whole.len()).step_by(1 + whole.len() / 200) {
                let decoded = decode_within_bounds::<M>(whole.slice(..cut), version);
                assert!(decoded.is_err(), "{} v{version} seed {seed} cut to {cut} bytes", M::NAME);
            }
            for _ in 0..24 {
                let _ = decode_within_bounds::<M>(damaged(&whole, &mut random), version);
            }
        }
        for _ in 0..24 {
            let length = random.usize(0..400);
            let noise: Bytes = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
            let _ = decode_within_bounds::<M>(noise, version);
        }
        // Small numbers look like counts, lengths and presence bytes that the rest may satisfy.
        for fill in [0x00, 0x01, 0x02, 0x03, 0x7f, 0xff] {
            let _ = decode_within_bounds::<M>(Bytes::from(vec![fill; 2000]), version);
        }
        for _ in 0..24 {
            let small: Bytes = std::iter::repeat_with(|| random.choice([0, 0, 1, 1, 1, 2, 3, 0xff]))
                .take(1000)
                .flatten()
                .collect();
            let _ = decode_within_bounds::<M>(small, version);
        }
    }
}

/// `whole` with up to four bytes changed, to what often means something.
fn damaged(whole: &[u8], random: &mut fastrand::Rng) -> Bytes {
    let mut bytes = whole.to_vec();
    for _ in 0..random.usize(1..=4) {
        if !bytes.is_empty() {
            let (at, any) = (random.usize(..bytes.len()), random.u8(..));
            bytes[at] = random.choice([0x00, 0x01, 0x7f, 0x80, 0xff, any]).unwrap_or_default();
        }
    }
    Bytes::from(bytes)
}

#[test]
fn no_bytes_make_a_message_panic_or_take_much_memory() {
    macro_rules! check {
        ($message:ident) => {
            survives::<$message>();
        };
    }
    every_message!(check);
}

#[test]
fn no_element_of_an_array_is_much_larger_in_memory_than_on_the_wire() {
    macro_rules! check {
        ($($element:ident)::+, $smallest:literal) => {
            let density = size_of::<$($element)::+>() / $smallest;
            assert!(density <= DENSITY_MAX, "{}: {density}", stringify!($($element)::+));
        };
    }
    every_array!(check);
}

#[test]
fn no_bytes_make_a_header_or_a_metadata_record_panic() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..20_000 {
        let length = random.usize(0..40);
        let mut noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
        let _ = decode_request_header(&mut Cursor::new(Bytes::from(noise.clone())));
        if let Some(first) = noise.first_mut() {
            *first = 1;
        }
        if let Some(key) = noise.get_mut(1) {
            *key %= 32;
        }
        let _ = MetadataRecord::decode(Bytes::from(noise));
    }
}

/// The request that makes `kafka-protocol` abort the process.
#[test]
fn an_array_of_four_billion_elements_in_five_bytes_is_refused() {
    let request = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
    let refused = decode_within_bounds::<MetadataRequest>(request, 12);
    assert_eq!(
        refused,
        Err(DecodeError::TooManyElements { at: 0, count: u32::MAX as usize - 1, possible: 0 })
    );
}

/// The most memory for the fewest bytes: empty strings, each one byte here and 32 there.
#[test]
fn the_densest_array_stays_within_its_bound() {
    let count = 200_000u32;
    let mut bytes = vec![];
    for group in 0..3 {
        bytes.push(((count + 1) >> (7 * group)) as u8 & 0x7f | if group < 2 { 0x80 } else { 0 });
    }
    bytes.extend(vec![0x01; count as usize]);
    bytes.extend([0x00, 0x00]);
    let decoded = decode_within_bounds::<DescribeGroupsRequest>(Bytes::from(bytes), 6).unwrap();
    assert_eq!(decoded.groups.len(), count as usize);
    assert!(decoded.groups.iter().all(|group| group.is_empty()));
}
