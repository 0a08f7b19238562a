//! Random values for messages.

use bytes::Bytes;
use tarn_wire::Str;
use tarn_wire::limits::SHARED_PART_BYTES_MIN;
use uuid::Uuid;

const LETTERS: [char; 9] = ['a', 'z', '0', '9', '.', '_', '-', 'é', '漢'];

/// Makes values; the same seed makes the same ones.
pub(crate) struct Maker {
    random: fastrand::Rng,
}

/// A struct that can be filled with random values that `version` can carry.
pub(crate) trait Instance: Sized {
    fn instance(make: &mut Maker, version: i16) -> Self;
}

/// The cases that `every_message!` and the tests share.
pub(crate) fn case<M: Instance>(seed: u64, version: i16) -> M {
    M::instance(&mut Maker { random: fastrand::Rng::with_seed(seed) }, version)
}

include!(concat!(env!("OUT_DIR"), "/instances.rs"));
pub(crate) use {every_array, every_message};

impl Maker {
    fn bool(&mut self) -> bool {
        self.random.bool()
    }

    fn i8(&mut self) -> i8 {
        self.edge(&[0, -1, i8::MIN, i8::MAX]).unwrap_or_else(|| self.random.i8(..))
    }

    fn i16(&mut self) -> i16 {
        self.edge(&[0, -1, i16::MIN, i16::MAX]).unwrap_or_else(|| self.random.i16(..))
    }

    fn u16(&mut self) -> u16 {
        self.edge(&[0, u16::MAX]).unwrap_or_else(|| self.random.u16(..))
    }

    fn i32(&mut self) -> i32 {
        self.edge(&[0, -1, i32::MIN, i32::MAX]).unwrap_or_else(|| self.random.i32(..))
    }

    fn u32(&mut self) -> u32 {
        self.edge(&[0, u32::MAX]).unwrap_or_else(|| self.random.u32(..))
    }

    fn i64(&mut self) -> i64 {
        self.edge(&[0, -1, i64::MIN, i64::MAX]).unwrap_or_else(|| self.random.i64(..))
    }

    fn f64(&mut self) -> f64 {
        f64::from(self.random.i32(..)) / 8.0
    }

    fn uuid(&mut self) -> Uuid {
        self.edge(&[Uuid::nil()]).unwrap_or_else(|| Uuid::from_u128(self.random.u128(..)))
    }

    fn string(&mut self) -> Str {
        let length = self.edge(&[0, 130]).unwrap_or_else(|| self.random.usize(1..12));
        let text: String = (0..length).map(|_| self.random.choice(LETTERS).unwrap_or_default()).collect();
        Str::from(text)
    }

    fn bytes(&mut self) -> Bytes {
        let rare = self.random.u8(..) == 0;
        let length = if rare { SHARED_PART_BYTES_MIN } else { self.random.usize(0..40) };
        std::iter::repeat_with(|| self.random.u8(..)).take(length).collect()
    }

    fn array<T>(&mut self, mut element: impl FnMut(&mut Maker) -> T) -> Vec<T> {
        let length = self.random.usize(0..4);
        (0..length).map(|_| element(self)).collect()
    }

    fn maybe<T>(&mut self, value: impl FnOnce(&mut Maker) -> T) -> Option<T> {
        self.bool().then(|| value(self))
    }

    /// One of the values where bugs live, in one case of three.
    fn edge<T: Copy>(&mut self, edges: &[T]) -> Option<T> {
        (self.random.u8(0..3) == 0).then(|| self.random.choice(edges).copied()).flatten()
    }
}
