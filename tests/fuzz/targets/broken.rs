//! Decoders that are wrong on purpose: the search has to find each within the inputs that every decoder gets.
//!
//! All read the same thing, a count behind a magic and then so many numbers behind their lengths, and each leaves out
//! one check.

use bytes::{Buf, Bytes};

use crate::engine::{Says, Target};

const MAGIC: u8 = 0x42;

fn good() -> Vec<u8> {
    vec![MAGIC, 0, 0, 0, 3, 1, 9, 2, 0, 9, 4, 0, 0, 0, 9]
}

/// What the decoders have in common: the count, behind the magic.
fn count_of(input: &mut Bytes) -> Option<u32> {
    let is_known = input.try_get_u8() == Ok(MAGIC);
    input.try_get_u32().ok().filter(|_| is_known)
}

fn target(name: &str, decode: fn(Bytes, u32) -> usize) -> Vec<Target> {
    let decode = move |mut input: Bytes| count_of(&mut input).map_or(0, |count| decode(input, count));
    let refused = |input: &Bytes| input.is_empty();
    let target = Target::new(
        name,
        move |input, _| {
            if refused(&input) { Says::good(0) } else { Says::good(decode(input)) }
        },
    );
    vec![target.seeds([good()])]
}

/// Believes that a number is as long as it says.
pub(crate) fn panics() -> Vec<Target> {
    target("broken.panics", |input, count| {
        let (mut read, mut at) = (0, 0);
        for _ in 0..count.min(1000) {
            let Some(&size) = input.get(at) else { break };
            read += input[at + 1..at + 1 + usize::from(size)].len();
            at += 1 + usize::from(size);
        }
        read
    })
}

/// Makes room for as many as are announced, as long as that is not absurd.
pub(crate) fn takes_memory() -> Vec<Target> {
    target("broken.takes-memory", |input, count| {
        let mut numbers: Vec<u64> = Vec::with_capacity(count.min(1 << 20) as usize);
        numbers.extend(input.iter().map(|byte| u64::from(*byte)).take(count as usize));
        numbers.len()
    })
}

/// Makes room for as many as are announced.
pub(crate) fn aborts() -> Vec<Target> {
    target("broken.aborts", |input, count| {
        let mut numbers: Vec<[u64; 8]> = Vec::with_capacity(count as usize);
        numbers.extend(input.iter().map(|byte| [u64::from(*byte); 8]).take(count as usize));
        numbers.len()
    })
}

/// Goes on by the length of each number, which may be none.
pub(crate) fn never_ends() -> Vec<Target> {
    target("broken.never-ends", |input, count| {
        let (mut at, mut read) = (0, 0);
        while let Some(&size) = input.get(at) {
            at += usize::from(size) + usize::from(size > 0);
            read += 1;
            if count == u32::MAX {
                break;
            }
        }
        read
    })
}

/// Yields one and the same number again where its length is zero.
pub(crate) fn yields_for_ever() -> Vec<Target> {
    let decode = |mut input: Bytes, steps: &mut crate::engine::Steps| {
        let count = count_of(&mut input).unwrap_or(0);
        let (mut at, mut read) = (0, 0);
        while let Some(&size) = input.get(at).filter(|_| count > 0) {
            steps.take();
            at += usize::from(size) + usize::from(size > 0);
            read += 1;
        }
        Says::good(read)
    };
    vec![Target::new("broken.yields-for-ever", decode).seeds([good()])]
}
