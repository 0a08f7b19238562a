//! How an input becomes another one that is nearly as good.
//!
//! Changes know what bytes often mean: a length, a count, a variable-length number, a line. They are drawn from one
//! generator, so a seed gives the same inputs each time.

use std::ops::Range;

/// No input becomes longer.
pub(crate) const INPUT_BYTES_MAX: usize = 64 * 1024;

/// The most changes to one input.
const CHANGES_MAX: u32 = 6;

/// Bytes that often mean something.
const BYTES: [u8; 12] = [0x00, 0x01, 0x02, 0x03, 0x04, 0x10, 0x20, 0x7f, 0x80, 0x81, 0xfe, 0xff];

/// Variable-length numbers at and beyond their limits: of 32 and 64 bits, too long, and without an end.
const VARINTS: [&[u8]; 9] = [
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xfe, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0x07],
    &[0xff, 0xff, 0xff, 0xff, 0x7f],
    &[0x80, 0x80, 0x80, 0x80, 0x00],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0x03],
    &[0x80, 0x00],
];

/// Numbers as text, at and beyond their limits.
const DIGITS: [&[u8]; 10] = [
    b"0",
    b"1",
    b"-1",
    b"2147483647",
    b"2147483648",
    b"-2147483648",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"00000000000000000000000000000001",
];

/// Changes inputs.
pub(crate) struct Mutator {
    pub(crate) random: fastrand::Rng,
    /// What inputs of this kind are made of, besides what every one may be.
    pub(crate) words: &'static [&'static [u8]],
}

impl Mutator {
    /// Changes `input` in a few places. `other` is another input of the same kind.
    pub(crate) fn change(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        // One change in most cases: of many, the first that is noticed hides the others.
        let changes = 1 + (self.random.u32(..) | 1 << CHANGES_MAX).trailing_zeros().min(CHANGES_MAX - 1);
        for _ in 0..changes {
            self.change_once(input, other);
        }
        input.truncate(INPUT_BYTES_MAX);
    }

    fn change_once(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        if input.is_empty() {
            input.extend_from_slice(other);
            return;
        }
        let at = self.random.usize(..input.len());
        match self.random.u8(..22) {
            0..=1 => input[at] ^= 1 << self.random.u8(..8),
            2..=3 => input[at] = self.a_byte(),
            4 => input[at] = input[at].wrapping_add(self.random.choice([1, 2, 0xff, 0xfe]).unwrap_or(1)),
            5..=8 => self.set_number(input),
            9..=10 => self.set_varint(input, at),
            11 => input.truncate(at),
            12 => drop(input.drain(self.range_in(input.len()))),
            13 => self.repeat(input),
            14 => self.insert_bytes(input, at),
            15 => self.fill(input),
            16 => self.exchange(input),
            17..=18 => self.splice(input, other),
            _ => self.set_text(input, at),
        }
    }

    fn a_byte(&mut self) -> u8 {
        if self.random.bool() { self.random.u8(..) } else { self.random.choice(BYTES).unwrap_or_default() }
    }

    /// A few bytes somewhere, long ones seldom.
    fn range_in(&mut self, len: usize) -> Range<usize> {
        let longest = if self.random.u8(..4) == 0 { len } else { len.min(16) };
        let size = self.random.usize(1..=longest.max(1)).min(len);
        let start = self.random.usize(..=len - size);
        start..start + size
    }

    /// Writes a number that may be taken for a length, preferably where one is.
    fn set_number(&mut self, input: &mut [u8]) {
        let size = self.random.choice([1usize, 2, 2, 4, 4, 4, 4, 8, 8]).unwrap_or(4);
        let Some(last) = input.len().checked_sub(size) else { return };
        let mut at = self.random.usize(..=last);
        // What does not exceed the bytes behind it may be a length, and lengths are few.
        for _ in 0..8 {
            let tried = self.random.usize(..=last);
            let number = big_endian(&input[tried..tried + size]);
            if (1..=(input.len() - tried) as u64).contains(&number) {
                at = tried;
                break;
            }
        }
        let field = &mut input[at..at + size];
        let number = self.a_number(big_endian(field), size);
        let bytes = number.to_be_bytes();
        field.copy_from_slice(&bytes[8 - size..]);
        if self.random.u8(..6) == 0 {
            field.reverse();
        }
    }

    fn a_number(&mut self, now: u64, size: usize) -> u64 {
        let highest = u64::MAX >> (64 - 8 * size);
        let near = self.random.u64(1..=16);
        match self.random.u8(..12) {
            0 => 0,
            1 => highest,
            2 => highest >> 1,
            3 => (highest >> 1) + 1,
            4 => now.wrapping_add(near),
            5 => now.wrapping_sub(near),
            6 => now.wrapping_mul(2),
            7 => (highest >> 1).wrapping_sub(near),
            8 => highest.wrapping_sub(near),
            9 => 1 << self.random.u32(..8 * size as u32),
            10 => now / 2,
            _ => self.random.u64(..),
        }
    }

    /// Writes a variable-length number in the place of one.
    fn set_varint(&mut self, input: &mut Vec<u8>, at: usize) {
        let long = input[at..].iter().take(9).take_while(|byte| **byte >= 0x80).count();
        let end = (at + long + 1).min(input.len());
        match self.random.u8(..3) {
            // The same number in more bytes.
            0 => {
                let last = input[end - 1];
                input[end - 1] = last | 0x80;
                let more = self.random.usize(..5);
                input.splice(end..end, std::iter::repeat_n(0x80, more).chain([0]));
            }
            1 => {
                let number = self.random.choice(VARINTS).unwrap_or_default();
                input.splice(at..end, number.iter().copied());
            }
            _ => {
                let mut number = self.random.u64(..) >> self.random.u32(..64);
                let mut bytes = Vec::new();
                while number >= 0x80 {
                    bytes.push(number as u8 | 0x80);
                    number >>= 7;
                }
                bytes.push(number as u8);
                input.splice(at..end, bytes);
            }
        }
    }

    /// Puts a copy of a range beside it, now and then many times.
    fn repeat(&mut self, input: &mut Vec<u8>) {
        let range = self.range_in(input.len());
        let times = if self.random.u8(..8) == 0 { self.random.usize(1..200) } else { 1 };
        let times = times.min((INPUT_BYTES_MAX - input.len().min(INPUT_BYTES_MAX)) / range.len().max(1));
        let copy = input[range.clone()].repeat(times);
        input.splice(range.end..range.end, copy);
    }

    fn insert_bytes(&mut self, input: &mut Vec<u8>, at: usize) {
        let count = self.random.usize(1..=16);
        let filler = self.random.choice([0, 0xff, 0x80, 0x20]).unwrap_or(0);
        let is_filled = self.random.bool();
        let bytes: Vec<u8> =
            (0..count).map(|_| if is_filled { filler } else { self.random.u8(..) }).collect();
        input.splice(at..at, bytes);
    }

    fn fill(&mut self, input: &mut [u8]) {
        let range = self.range_in(input.len());
        let byte = self.a_byte();
        input[range].fill(byte);
    }

    fn exchange(&mut self, input: &mut Vec<u8>) {
        let (from, to) = (self.range_in(input.len()), self.random.usize(..input.len()));
        let moved: Vec<u8> = input.drain(from).collect();
        let to = to.min(input.len());
        input.splice(to..to, moved);
    }

    /// A part of the other input in the place of a part, or its end behind a beginning.
    fn splice(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        if other.is_empty() {
            return;
        }
        let (mine, theirs) = (self.range_in(input.len()), self.range_in(other.len()));
        if self.random.bool() {
            input.splice(mine, other[theirs].iter().copied());
        } else {
            input.truncate(mine.start);
            input.extend_from_slice(&other[theirs.start..]);
        }
    }

    /// Text: another number in the place of one, or a word.
    fn set_text(&mut self, input: &mut Vec<u8>, at: usize) {
        let is_digit = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
        let digits = input[at..].iter().position(is_digit).map(|found| at + found);
        if let (Some(start), true) = (digits, self.words.is_empty() || self.random.bool()) {
            let size = input[start..].iter().take_while(|byte| is_digit(byte)).count();
            let number = self.random.choice(DIGITS).unwrap_or_default();
            input.splice(start..start + size, number.iter().copied());
        } else if let Some(word) = self.random.choice(self.words) {
            let replaced = if self.random.bool() { word.len().min(input.len() - at) } else { 0 };
            input.splice(at..at + replaced, word.iter().copied());
        }
    }
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
